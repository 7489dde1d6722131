"""`swarm problems import`: problems of other projects. Reading them is `swarm.importers`' business."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from swarm.cli.context import json_option, print_json, root_of, stderr, stdout
from swarm.errors import MAX_CHARS, BadInput
from swarm.foreign import one_line

if TYPE_CHECKING:
    from swarm.importers.intake import Imported, LeftOut
    from swarm.importers.remarks import Remark
    from swarm.judge.reference import References

NAMED = 3
"""Of those that are left out for the same reason, how many are named."""


@click.command("import")
@click.argument("source", metavar="SRC", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--blobs",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Where safetensors files are; otherwise beside the problems and in $FLASHINFER_TRACE_DIR.",
)
@click.option(
    "--licence", metavar="TEXT", help="What to record; otherwise what the head of SRC's README.md says."
)
@click.option("--force", is_flag=True, help="Replace problems that are there with other content.")
@json_option
@click.pass_context
def import_(
    ctx: click.Context, source: Path, blobs: Path | None, licence: str | None, force: bool, as_json: bool
) -> None:
    """Import the problems of SRC: SOL-ExecBench, FlashInfer-Trace or KernelBench.

    A folder of any of them, or one file of KernelBench. What is there already is not touched, unless it
    differs and --force is given. Ends with exit code 1 if one of them was left out; the others are there.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from swarm.importers.intake import Imported, bring_in, find, licence_of
    from swarm.importers.remarks import Remarks
    from swarm.protocol import read_protocol

    root = root_of(ctx)
    protocol = read_protocol(root.coordination.read_bytes(), root.coordination.name)
    remarks, done, left = Remarks(), [], []
    stated = licence or licence_of(source)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with ExitStack() as opened:

        @cache
        def references() -> References:
            from swarm.device import cpu_device
            from swarm.judge.reference import References

            return opened.enter_context(References(cpu_device()))

        found = find(source, blobs, references)
        console = stderr()
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task(found.format, total=len(found.entries))
            for result in bring_in(found, root, protocol, stated, remarks, force=force):
                if isinstance(result, Imported):
                    done.append(result)
                else:
                    left.append(result)
                progress.advance(task)
    said = remarks.all()
    if as_json:
        print_json(
            {
                "format": found.format,
                "licence": stated,
                "imported": [asdict(item) for item in done],
                "left_out": [{"where": item.where, "error": str(item.error)} for item in left],
                "remarks": [asdict(remark) for remark in said],
            }
        )
    else:
        _print(found.format, found.remark, stated, done, left, said)
    if left:
        more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
        raise BadInput(f"left out: {left[0].error}{more}")


def _print(
    format_: str,
    remark: str,
    licence: str,
    done: list[Imported],
    left: list[LeftOut],
    remarks: list[Remark],
) -> None:
    out = stdout()

    def say(line: str) -> None:
        """Print a line, in which the names of strangers cannot steer a terminal."""
        out.print(f"  {one_line(line, MAX_CHARS)}", markup=False, soft_wrap=True)

    counts = Counter(item.outcome.value for item in done)
    parts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    whole = f"{format_}: {len(done)} of {len(done) + len(left)} problems imported"
    out.print(f"{whole} ({parts})" if parts else whole, style="bold", markup=False, soft_wrap=True)
    for item in done if len(done) <= NAMED else ():
        say(f"{item.name}: {item.outcome.value}, from {item.where}")
    for line in _reasons(left):
        say(f"✗ {line}")
    for one in remarks:
        places = f"{one.problems} problems" if one.problems > 1 else "1 problem"
        lines = f", {one.places} places" if one.places > one.problems else ""
        say(f"· {places}{lines}: {one.text}")
    if remark:
        say(f"· {remark}")
    say(f"licence: {licence} (recorded in problem.toml); whether it lets you use them is yours to know")


def _reasons(left: list[LeftOut]) -> list[str]:
    """Return a line for each that was left out; of many with the same reason, for the first few."""
    by_reason: dict[str, list[LeftOut]] = {}
    for item in left:
        by_reason.setdefault(f"{item.error.what.partition(':')[0]}; {item.error.remedy}", []).append(item)
    lines = []
    for items in by_reason.values():
        lines += [str(item.error) for item in items[:NAMED]]
        if len(items) > NAMED:
            lines.append(f"and {len(items) - NAMED} more for this reason (--json names all)")
    return lines
