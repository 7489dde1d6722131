"""`swarm baseline`: measure what speedups are held against."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from swarm.cli.context import (
    Positive,
    check_hub,
    device_option,
    json_option,
    load_chosen,
    print_json,
    print_table,
    raise_left_out,
    root_of,
    run_of,
    run_option,
    stderr,
)

if TYPE_CHECKING:
    from swarm.baseline import Baseline, Optimised

SECONDS_PER_MINUTE = 60


@click.command()
@click.argument("names", metavar="[PROBLEM]...", nargs=-1)
@click.option("--budget-min", type=Positive(), help="Minutes for all; else as in swarm.toml.")
@click.option("--optimise", is_flag=True, help="Time the champions of a run in PyTorch, too.")
@run_option
@device_option
@json_option
@click.pass_context
def baseline(
    ctx: click.Context,
    names: tuple[str, ...],
    budget_min: float | None,
    optimise: bool,
    run_name: str | None,
    device: str | None,
    as_json: bool,
) -> None:
    """Measure eager, torch.compile and baseline.py of problems.

    If none is named, those of all problems that are not on file, or whose files have changed; so it goes on
    where it was stopped, and keeps the times it has of a problem that was begun. Those that are named and
    on file as a whole are measured again. Of several GPUs an idle one measures. With --optimise the
    champions of --run that are in PyTorch are timed beside what is on file, and T_b takes them.
    """
    from swarm.baseline import load_baseline
    from swarm.cli.devices import chosen_devices, describe, idle_one
    from swarm.cli.references import is_measured, measure_baselines, pytorch_champions
    from swarm.config import load_config

    root = root_of(ctx)
    config = load_config(root)
    budget_s = SECONDS_PER_MINUTE * budget_min if budget_min else config.budget.baseline_s
    where = idle_one(chosen_devices(device or config.run.device))
    problems, broken = load_chosen(root, names, where)
    stderr().print(f"on {describe([where])}", style="dim", markup=False, soft_wrap=True)
    champions: dict[str, Optimised] = {}
    if optimise:
        paths = run_of(ctx, run_name)
        check_hub(paths)
        champions, remarks = pytorch_champions(root, paths, problems)
        for remark in remarks:
            stderr().print(remark, style="dim", markup=False, soft_wrap=True)
    wanted = [
        problem
        for problem in problems
        if (names and not optimise) or not is_measured(root, where, problem, champions.get(problem.name))
    ]
    known = [load_baseline(root, where.model, problem.name) for problem in problems if problem not in wanted]
    measured: list[Baseline] = []
    with stderr().status("") as status:

        def tell(one: Baseline) -> None:
            measured.append(one)
            status.update(f"{len(measured)} of {len(wanted)} measured")

        status.update(f"measuring {len(wanted)} problems, {budget_s:.0f} s at most")
        if wanted:
            measure_baselines(root, where, wanted, budget_s, tell, champions)
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
