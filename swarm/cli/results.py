"""`swarm results`: which runs have results, and records that were made elsewhere."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from swarm.cli.context import check_hub, json_option, print_json, print_table, root_of, run_of, run_option
from swarm.errors import BadInput

if TYPE_CHECKING:
    from swarm.intake import Taken
    from swarm.layout import RunPaths

FIGURES = ("run", "verdicts", "device", "problems", "weak", "above_1x", "speedup")
SHOWN_FAULTS = 10


@click.group()
def results() -> None:
    """Say which runs have results; take in what was measured elsewhere."""


@results.command("list")
@json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    """List the runs with results, and the figures of their scoreboards."""
    rows = []
    root = root_of(ctx)
    for path in sorted(root.runs_with_results()):
        paths = root.run(path.name)
        verdicts = sum(1 for _ in path.glob("verdicts/*/*.json"))
        rows.append({"run": path.name, "verdicts": verdicts, **_figures(paths)})
    if as_json:
        print_json(rows)
    else:
        headings = ("run", "verdicts", "device", "problems", "weak", "above 1×", "speedup")
        print_table(
            headings,
            [tuple("–" if row[key] is None else str(row[key]) for key in FIGURES) for row in rows],
            right=frozenset(headings[1:2] + headings[3:]),
        )


@results.command("import")
@click.argument("source", metavar="DIR|FILE", type=click.Path(path_type=Path))
@run_option
@json_option
@click.pass_context
def import_(ctx: click.Context, source: Path, run_name: str | None, as_json: bool) -> None:
    """Take in what `swarm bench --bundle` left in DIR, or the results.zip it made of it.

    What is on file stays; done twice, it changes nothing the second time.
    """
    from swarm.hub import Hub
    from swarm.intake import take_in
    from swarm.ledger import Ledger
    from swarm.parcel import opened

    root, paths = root_of(ctx), run_of(ctx, run_name)
    check_hub(paths)
    with Hub(paths) as hub, Ledger(paths) as ledger, opened(source) as parcel:
        taken = take_in(parcel, str(source), root, paths, hub, ledger, time.time())
    if as_json:
        print_json(_as_json(taken))
    else:
        click.echo(_sentence(taken))
        for line in taken.renumbered:
            click.echo(line)
    _raise_not_taken(taken)


def _sentence(taken: Taken) -> str:
    counts = (
        (taken.verdicts, "verdicts"),
        (taken.comparisons, "comparisons"),
        (taken.baselines, "baselines"),
    )
    new = ", ".join(f"{count} {what}" for count, what in counts)
    return f"taken in: {new}; {taken.known} were on file already"


def _as_json(taken: Taken) -> object:
    return {
        "verdicts": taken.verdicts,
        "comparisons": taken.comparisons,
        "baselines": taken.baselines,
        "known": taken.known,
        "renumbered": taken.renumbered,
        "faults": [str(fault) for fault in taken.faults],
    }


def _raise_not_taken(taken: Taken) -> None:
    """End with the first record that was not taken, the others listed before it; the rest has been done."""
    if not taken.faults:
        return
    for fault in taken.faults[1:SHOWN_FAULTS]:
        click.echo(str(fault), err=True)
    if len(taken.faults) > SHOWN_FAULTS:
        click.echo(f"... and {len(taken.faults) - SHOWN_FAULTS} more", err=True)
    raise taken.faults[0]


def _figures(paths: RunPaths) -> dict[str, object]:
    """Return what a run's scoreboard says without weak problems, None for each figure if it has none yet."""
    try:
        board = json.loads(paths.scoreboard_json.read_bytes())
        counted = [problem for problem in board["problems"] if not problem.get("is_weak", False)]
        speedups = [problem["speedup"] for problem in counted if problem["speedup"] is not None]
        mean = _geometric_mean(speedups)
        return {
            "device": str(board["device"]),
            "problems": len(counted),
            "weak": len(board["problems"]) - len(counted),
            "above_1x": sum(speedup > 1 for speedup in speedups),
            "speedup": mean,
        }
    except FileNotFoundError:
        return dict.fromkeys(FIGURES[2:])
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"not a scoreboard: {error!r}", where=str(paths.scoreboard_json), remedy="type: swarm report"
        ) from None


def _geometric_mean(speedups: list[float]) -> float | None:
    from swarm.verdict import geometric_mean

    return round(geometric_mean(speedups), 3) if speedups else None
