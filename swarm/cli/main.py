"""The `swarm` command: finds the subcommand, and turns what escapes it into an exit code.

0 done · 1 a SwarmError, one line · 2 usage · 3 a fault of ours, with a log file · 130 interrupted.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
import sys
import tempfile
import time
import traceback
from pathlib import Path

import click

from swarm import __version__
from swarm.durable import refusal
from swarm.errors import SwarmError
from swarm.layout import find_root

COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("swarm.cli.init:init", "Set up a run root in DIR: protocol, settings, and room for problems."),
    "doctor": ("swarm.cli.doctor:doctor", "Say what this machine can do, what is missing and how to fix it."),
    "run": ("swarm.cli.run:run", "Run the swarm until time is up, and print the scoreboard."),
    "status": ("swarm.cli.status:status", "Show the board, the roles, the device and the pace of a run."),
    "stop": ("swarm.cli.status:stop", "Stop a run: every role ends after the step it is in."),
    "watch": ("swarm.cli.roles:watch", "Have every commit and every wanted comparison measured."),
    "plan": ("swarm.cli.roles:plan", "Hand out work, ask for comparisons, merge what won."),
    "worker": ("swarm.cli.roles:worker", "Work as ID on whatever the planner assigns to it."),
    "submit": ("swarm.cli.submit:submit", "In a worktree: hand in, wait, print the verdict."),
    "bench": ("swarm.cli.bench:bench", "Measure a solution of PROBLEM here and now; nothing is recorded."),
    "baseline": (
        "swarm.cli.baseline:baseline",
        "Measure eager, torch.compile and baseline.py of problems.",
    ),
    "sol": ("swarm.cli.sol:sol", "Show the peaks of a device and the limit of every workload."),
    "problems": (
        "swarm.cli.problems:problems",
        "List problems, show one, check one, import some, extract some from a model.",
    ),
    "log": ("swarm.cli.log:log", "Show what was tried on PROBLEM, newest first: seed, attempts, merges."),
    "report": ("swarm.cli.report:report", "Write scoreboard and report.html of a run, print the scoreboard."),
    "import-solution": (
        "swarm.cli.exchange:import_solution",
        "Make a solution folder of FILE, a SOL-ExecBench solution.json.",
    ),
    "export": (
        "swarm.cli.exchange:export",
        "Write a solution of PROBLEM as a SOL-ExecBench solution.json.",
    ),
    "pending": (
        "swarm.cli.pending:pending",
        "List commits without a verdict and comparisons that are wanted, or put them into a file.",
    ),
    "results": (
        "swarm.cli.results:results",
        "Say which runs have results; take in what was measured elsewhere.",
    ),
}
"""Name -> (where it is, its one line). `swarm --help` reads this table and imports none of them."""


class LazyGroup(click.Group):
    """A group whose commands are imported only when one is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="swarm")
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="SWARM_ROOT",
    help="The run root; otherwise the nearest folder upwards that holds COORDINATION.md and swarm.toml.",
)
@click.pass_context
def swarm(ctx: click.Context, root: Path | None) -> None:
    """A git-native swarm that makes kernels faster.

    Problems are branches, workers only commit, every commit is measured, winners are merged.
    """
    ctx.obj = root


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    try:
        result = swarm.main(arguments, prog_name="swarm", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except SwarmError as error:
        print(f"swarm: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, click.Abort):
        print("swarm: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader went away (`swarm log | head`): nobody is left to tell, and Python would at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        refused = refusal(error) if isinstance(error, OSError) else None
        if refused is not None:  # a full disk can strike wherever something is written
            print(f"swarm: {refused}", file=sys.stderr)
            return 1
        where = _write_fault(arguments if arguments is not None else sys.argv[1:])
        kind = type(error).__name__
        print(
            f"swarm: a fault of ours: {kind}: {_one_line(error)}; the details are in {where}", file=sys.stderr
        )
        return 3
    return result if isinstance(result, int) else 0


def _write_fault(arguments: list[str]) -> Path:
    """Write the current exception as Markdown, ready to be pasted into a report, and return where."""
    text = "\n".join(
        [
            "# swarm: a fault of ours",
            "",
            f"- swarm {__version__}, Python {platform.python_version()}, {platform.platform()}",
            f"- command: `swarm {' '.join(arguments)}`",
            f"- in: `{Path.cwd()}`",
            f"- at: {time.strftime('%Y-%m-%d %H:%M:%S %z')}",
            "",
            "```",
            traceback.format_exc().rstrip(),
            "```",
            "",
        ]
    )
    name = f"fault-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.md"
    for folder in _fault_folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / name
            path.write_text(text, encoding="utf-8")
        except OSError:  # a full or read-only disk must not hide the fault itself
            continue
        return path
    print(text, file=sys.stderr)
    return Path("the lines above")


def _fault_folders() -> list[Path]:
    folders = [Path(tempfile.gettempdir())]
    with contextlib.suppress(SwarmError, OSError):
        folders.insert(0, find_root(Path.cwd()).faults)
    return folders


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


if __name__ == "__main__":
    sys.exit(main())
