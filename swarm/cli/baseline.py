"""`swarm baseline`: measure what speedups are held against."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from swarm.cli.context import (
    Positive,
    device_option,
    json_option,
    load_chosen,
    print_json,
    print_table,
    raise_left_out,
    root_of,
    stderr,
)

if TYPE_CHECKING:
    from swarm.baseline import Baseline

SECONDS_PER_MINUTE = 60


@click.command()
@click.argument("names", metavar="[PROBLEM]...", nargs=-1)
@click.option("--budget-min", type=Positive(), help="Minutes for all; else as in swarm.toml.")
@device_option
@json_option
@click.pass_context
def baseline(
    ctx: click.Context, names: tuple[str, ...], budget_min: float | None, device: str | None, as_json: bool
) -> None:
    """Measure eager, torch.compile and baseline.py of problems.

    If none is named, those of all problems that are not on file, or whose files have changed; so it goes on
    where it was stopped, and keeps the times it has of a problem that was begun. Those that are named and
    on file as a whole are measured again. Of several GPUs an idle one measures.
    """
    from swarm.baseline import load_baseline
    from swarm.cli.devices import chosen_devices, describe, idle_one
    from swarm.cli.references import is_measured, measure_baselines
    from swarm.config import load_config

    root = root_of(ctx)
    config = load_config(root)
    budget_s = SECONDS_PER_MINUTE * budget_min if budget_min else config.budget.baseline_s
    where = idle_one(chosen_devices(device or config.run.device))
    problems, broken = load_chosen(root, names, where)
    stderr().print(f"on {describe([where])}", style="dim", markup=False, soft_wrap=True)
    wanted = [problem for problem in problems if names or not is_measured(root, where, problem)]
    known = [load_baseline(root, where.model, problem.name) for problem in problems if problem not in wanted]
    measured: list[Baseline] = []
    with stderr().status("") as status:

        def tell(one: Baseline) -> None:
            measured.append(one)
            status.update(f"{len(measured)} of {len(wanted)} measured")

        status.update(f"measuring {len(wanted)} problems, {budget_s:.0f} s at most")
        if wanted:
            measure_baselines(root, where, wanted, budget_s, tell)
    found = [*filter(None, known), *measured]
    if as_json:
        print_json([asdict(one) | {"t_b_us": one.times_us} for one in found])
    else:
        _print(found)
    raise_left_out(broken)


def _print(measured: list[Baseline]) -> None:
    from swarm.report.render import microseconds

    rows = []
    for one in measured:
        best = one.times_us
        for contender in one.contenders:
            for uuid, time_us in contender.times_us.items():
                mark = "T_b" if time_us == best.get(uuid) else ""
                rows.append((one.problem, contender.name, uuid, microseconds(time_us), mark))
            if contender.missing:
                rows.append((one.problem, contender.name, "", "", contender.missing))
    print_table(("problem", "contender", "workload", "µs", ""), rows, right=frozenset(("µs",)))
