"""`swarm problems`: what there is, and what one problem says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from swarm.cli.context import json_option, print_json, print_table, root_of, stdout
from swarm.cli.lint import lint
from swarm.errors import BadInput, SwarmError

if TYPE_CHECKING:
    from swarm.problem import Problem


@click.group()
def problems() -> None:
    """List problems, show one, check one."""


problems.add_command(lint)


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
            rows.append(_summary(problem))
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


@problems.command()
@click.argument("name", metavar="PROBLEM")
@json_option
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show the definition, workloads and reference of PROBLEM."""
    from swarm.problem import load_problem

    problem = load_problem(root_of(ctx).problem(name))
    if as_json:
        print_json(
            {
                **_summary(problem),
                "definition": problem.definition.model_dump(mode="json"),
                "workloads": [w.model_dump(mode="json") for w in problem.workloads],
                "cpu_workloads": [w.model_dump(mode="json") for w in problem.cpu_workloads],
                "settings": problem.settings.model_dump(mode="json"),
            }
        )
        return
    _show(problem)


def _summary(problem: Problem) -> dict[str, Any]:
    return {
        "name": problem.name,
        "is_weak": problem.settings.weak,
        "family": problem.settings.family,
        "description": problem.definition.description or "",
        "seeds": sorted(problem.seeds),
        "workloads": len(problem.workloads),
        "cpu_workloads": len(problem.cpu_workloads),
    }


def _show(problem: Problem) -> None:
    out = stdout()
    definition = problem.definition
    out.print(f"[bold]{problem.name}[/]  {definition.description or ''}", soft_wrap=True)
    if problem.settings.source:
        out.print(problem.settings.source, style="dim", markup=False, soft_wrap=True)
    if problem.settings.weak:
        out.print("weak: a wrong answer passes, so no headline figure counts it", style="yellow")
    out.print()
    tensors = [("in", n, s) for n, s in definition.inputs.items()]
    tensors += [("out", n, s) for n, s in definition.outputs.items()]
    print_table(
        ("", "tensor", "dtype", "shape"),
        [
            (
                kind,
                name,
                spec.dtype.value,
                "scalar" if spec.shape is None else " × ".join(spec.shape) or "0-d",
            )
            for kind, name, spec in tensors
        ],
    )
    for title, workloads in (("on a CPU", problem.cpu_workloads), ("on a GPU", problem.workloads)):
        out.print()
        axes = list(definition.axes)
        print_table(
            (f"workload {title}", *axes),
            [
                (workload.uuid, *(str(size) for size in definition.resolve(workload).values()))
                for workload in workloads
            ],
            right=frozenset(axes),
        )
    out.print()
    out.print(problem.reference.strip(), markup=False, soft_wrap=True)
