"""`python -m tests.corpus`: every attack and every honest candidate that can run here, in one table.

Ends with exit code 1 if one of them did not end as it must.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from swarm.errors import SwarmError
from tests.corpus.cases import Case, cases
from tests.corpus.judged import Outcome, devices, judges

WIDTH = 120
"""Of the table where no terminal says otherwise."""


@click.command()
@click.option("--device", type=click.Choice(["cpu", "gpu"]), help="Only what runs on this kind of device.")
@click.option("-k", "words", default="", help="Only cases with this in their name.")
def main(device: str | None, words: str) -> None:
    """Run the attack and honest corpora through the judge."""
    wanted = [case for case in cases(on=device) if words in case.name]
    here = devices()
    ready = [case for case in wanted if case.on in here]
    out = Console(width=None if sys.stdout.isatty() else WIDTH)
    with tempfile.TemporaryDirectory(prefix="swarm-corpus-") as folder:
        found = _run(ready, Path(folder))
    out.print(_table(found))
    for case, outcome in found:
        if not _is_met(case, outcome):
            out.print(f"[red]{case.name}[/red] wants {case.status}: /{escape(case.reason)}/")
            out.print(f"  got {escape(str(outcome))}")
    met = [case for case, outcome in found if _is_met(case, outcome)]
    out.print(
        f"{_share('attack', met, ready)} attacks stopped, {_share('honest', met, ready)} honest accepted, "
        f"{len(wanted) - len(ready)} wait for a GPU"
    )
    sys.exit(len(met) < len(found) or not found)


def _run(ready: list[Case], folder: Path) -> list[tuple[Case, Outcome | SwarmError]]:
    """Judge all cases; that the judge could not say is kept like an outcome, and is a miss."""
    found: list[tuple[Case, Outcome | SwarmError]] = []
    with Progress(console=Console(stderr=True), transient=True) as progress, judges(folder) as judged:
        task = progress.add_task("judging", total=len(ready))
        for case in ready:
            progress.update(task, description=case.name)
            try:
                found.append((case, judged(case)))
            except SwarmError as error:
                found.append((case, error))
            progress.advance(task)
    return found


def _table(found: list[tuple[Case, Outcome | SwarmError]]) -> Table:
    table = Table("attack", "language", "expected", "got", "ms", row_styles=["", "dim"])
    table.columns[-1].justify = "right"
    for case, outcome in found:
        got = outcome.status if isinstance(outcome, Outcome) else "no answer"
        name = f"{case.family} {case.name}" if case.family else f"(honest) {case.name}"
        colour = "green" if _is_met(case, outcome) else "red"
        ms = f"{outcome.ms:.0f}" if isinstance(outcome, Outcome) else ""
        table.add_row(name, case.language, case.status, f"[{colour}]{got}[/{colour}]", ms)
    return table


def _is_met(case: Case, outcome: Outcome | SwarmError) -> bool:
    return isinstance(outcome, Outcome) and outcome.meets(case)


def _share(kind: str, met: list[Case], ready: list[Case]) -> str:
    return f"{sum(case.kind == kind for case in met)} of {sum(case.kind == kind for case in ready)}"


if __name__ == "__main__":
    main()
