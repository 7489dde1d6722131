"""`swarm doctor`: the capabilities of this machine as a table."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from swarm.cli.context import json_option, print_json, stderr, stdout
from swarm.errors import Refused

MARKS = {
    "there": "[green]✓[/] there",
    "limited": "[yellow]![/] limited",
    "missing": "[red]✗[/] missing",
    "unused": "[dim]– not there[/]",
}


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Say what this machine can do, what is missing and how to fix it.

    Ends with exit code 1 if the default run could not start here.
    """
    from swarm.cli.capabilities import probe
    from swarm.cli.capability import State

    chosen = ctx.find_root().obj
    folder = chosen if isinstance(chosen, Path) else Path.cwd()
    with stderr().status("probing this machine"):
        found = list(probe(folder))
    missing = [c for c in found if c.state is State.MISSING]
    if as_json:
        print_json({"ready": not missing, "capabilities": [asdict(c) for c in found]})
    else:
        _table([(c.name, MARKS[c.state], c.found, c.remedy) for c in found])
    if missing:
        names = ", ".join(c.name for c in missing)
        raise Refused(
            f"the default run cannot start here without: {names}", remedy=f"type: {missing[0].remedy}"
        )


def _table(rows: list[tuple[str, str, str, str]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("capability", "state", "what was found", "what would fix it"):
        table.add_column(heading)
    for row in rows:
        table.add_row(*row)
    stdout().print(table)
