"""`swarm problems`: what there is."""

from __future__ import annotations

import click

from swarm.cli.context import json_option, print_json, print_table, root_of
from swarm.cli.extract import extract
from swarm.cli.import_problems import import_
from swarm.cli.lint import lint
from swarm.cli.show import show, summary
from swarm.errors import BadInput, SwarmError


@click.group()
def problems() -> None:
    """List problems, show one, check one, import some, extract some from a model."""


problems.add_command(lint)
problems.add_command(show)
problems.add_command(import_)
problems.add_command(extract)


@problems.command("list")
@json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    """List the problems of this run root, broken ones with their error."""
    from swarm.config import choose_problems
    from swarm.problem import load_problem
    from swarm.settings import labelled

    root = root_of(ctx)
    rows, broken = [], []
    for name in choose_problems(("*",), root.problems):
        try:
            problem = load_problem(root.problem(name))
        except SwarmError as error:
            broken.append({"name": name, "error": str(error)})
        else:
            rows.append(summary(problem))
    if as_json:
        print_json({"problems": rows, "broken": broken})
    else:
        headings = ("problem", "family", "seeds", "CPU", "GPU", "what it is")
        print_table(
            headings,
            [
                (
                    labelled(row["name"], row["is_weak"]),
                    str(row["family"]),
                    " ".join(row["seeds"]) or "–",
                    str(row["cpu_workloads"]),
                    str(row["workloads"]),
                    str(row["description"]),
                )
                for row in rows
            ],
            right=frozenset(("CPU", "GPU")),
        )
    if broken:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        raise BadInput(f"{broken[0]['error']}{more}")
