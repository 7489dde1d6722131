"""What every command shares: the run root, `--run`, `--json`, and the two consoles."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from swarm.errors import BadInput
from swarm.layout import RunPaths, RunRoot, find_root

if TYPE_CHECKING:
    from rich.console import Console

    from swarm.device import Device
    from swarm.problem import Problem

PIPE_COLUMNS = 140
"""Without a terminal rich assumes 80 columns and folds a table that a file has room for."""

Command = TypeVar("Command", bound=Callable[..., Any])


class Positive(click.FloatRange):
    """A number above 0; `nan` and `inf` are numbers to Python, but no time to wait."""

    def __init__(self) -> None:
        super().__init__(0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(command)


def run_option(command: Command) -> Command:
    return click.option(
        "--run",
        "run_name",
        envvar="SWARM_RUN",
        metavar="NAME",
        help="The run: workspace/NAME and results/NAME; otherwise the name in swarm.toml.",
    )(command)


def device_option(command: Command) -> Command:
    return click.option(
        "--device",
        envvar="SWARM_DEVICE",
        metavar="D",
        help="cpu, cuda, cuda:0,1 or a GPU's UUID; otherwise as in swarm.toml, or what the language runs on.",
    )(command)


def device_model_option(command: Command) -> Command:
    return click.option(
        "--device-model",
        metavar="MODEL",
        help="What the run is measured on, if that is elsewhere, for example nvidia-h200.",
    )(command)


def root_of(ctx: click.Context) -> RunRoot:
    """Return the run root that `--root`, or else the current folder, lies in."""
    chosen = ctx.find_root().obj
    return find_root((chosen if isinstance(chosen, Path) else Path.cwd()).resolve())


def run_of(ctx: click.Context, name: str | None) -> RunPaths:
    root = root_of(ctx)
    if name is None:
        from swarm.config import load_config  # pydantic: 60 ms that a named run does not need

        name = load_config(root).run.name
    return root.run(name)


def check_hub(paths: RunPaths) -> None:
    """Raise BadInput unless the run has branches: it was never started, or is spelt differently."""
    if not paths.hub.is_dir():
        raise BadInput(f"run {paths.run!r} has no hub", where=str(paths.hub), remedy="type: swarm run")


def load_chosen(
    root: RunRoot, names: tuple[str, ...], device: Device
) -> tuple[list[Problem], list[BadInput]]:
    """Return the problems that names or patterns choose, all without any, and why others are left out.

    One without workloads for `device` is left out, without a word unless it was named.
    """
    from swarm.config import choose_problems
    from swarm.problem import load_problem

    problems, broken = [], []
    for name in choose_problems(names or ("*",), root.problems):
        try:
            problem = load_problem(root.problem(name))
            if device.kind == "cpu" and not problem.cpu_workloads and name not in names:
                continue
            problem.workloads_on(device)
            problems.append(problem)
        except BadInput as error:
            broken.append(error)
    if broken and not problems:
        raise_left_out(broken)
    return problems, broken


def raise_left_out(broken: Sequence[BadInput]) -> None:
    """End with what was left out, if anything was; the rest has been done."""
    for error in broken[:-1]:
        stderr().print(f"left out: {error}", style="red", markup=False, soft_wrap=True)
    if broken:
        last = broken[-1]
        raise BadInput(f"left out: {last}")


def print_json(data: object) -> None:
    click.echo(json.dumps(data, indent=1, allow_nan=False))


def stdout() -> Console:
    """Return the console for what was asked for."""
    from rich.console import Console  # 30 ms that `swarm --help` and `--json` should not cost

    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS)


def stderr() -> Console:
    """Return the console for progress and remarks; stdout stays clean for pipes."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else PIPE_COLUMNS)


def print_table(
    headings: tuple[str, ...], rows: Sequence[tuple[str, ...]], right: frozenset[str] = frozenset()
) -> None:
    """Print a table without lines; the columns named in `right` hold numbers. Cells are plain text."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    stdout().print(table)
