"""`swarm sol`: a device's peaks, and the speed of light of each workload.

Nothing runs on the device: FLOPs are counted on the CPU from shapes alone, and a GPU's peaks are published.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from swarm.cli.context import (
    json_option,
    load_chosen,
    print_json,
    print_table,
    raise_left_out,
    root_of,
    stderr,
    stdout,
)
from swarm.errors import BadInput

if TYPE_CHECKING:
    from swarm.judge.limit import Limit
    from swarm.judge.reference import References
    from swarm.problem import Problem
    from swarm.sol import Peaks
    from swarm.workload import Workload

    Row = tuple[str, str, Limit]


@click.command()
@click.argument("names", metavar="[PROBLEM]...", nargs=-1)
@click.option(
    "--device-model",
    metavar="MODEL",
    help="Of this GPU, which need not be here, for example nvidia-h200; otherwise of this machine.",
)
@json_option
@click.pass_context
def sol(ctx: click.Context, names: tuple[str, ...], device_model: str | None, as_json: bool) -> None:
    """Show the peaks of a device and the limit of every workload.

    All problems if none is named.
    """
    from swarm.cli.devices import peaks_of
    from swarm.device import Device, cpu_device
    from swarm.judge.reference import InvalidReference, References
    from swarm.peaks_table import model_of

    root, device = root_of(ctx), cpu_device()
    counting = device
    if device_model is not None and device_model != device.model:
        device = Device("cuda", model_of(device_model), "", ())
    problems, broken = load_chosen(root, names)
    with (
        stderr().status("counting what the references compute"),
        References(counting) as references,
    ):
        peaks = peaks_of(root, device)
        rows: list[Row] = []
        for problem in problems:
            try:
                for workload in problem.workloads_on(device):
                    limit = _limit(problem, workload, peaks, references)
                    rows.append((problem.name, workload.uuid, limit))
            except BadInput as error:
                broken.append(error)
            except InvalidReference as error:
                broken.append(BadInput(str(error), where=problem.name, remedy="correct its reference"))
    if as_json:
        limits_json = [{"problem": name, "workload": uuid, **asdict(limit)} for name, uuid, limit in rows]
        print_json({"peaks": asdict(peaks), "limits": limits_json})
    else:
        _print(peaks, rows)
    raise_left_out(broken)


def _limit(problem: Problem, workload: Workload, peaks: Peaks, references: References) -> Limit:
    from swarm.judge.limit import limit_of
    from swarm.judge.reference import input_specs

    reference = references.get(problem.name, problem.name, problem.definition, is_wider=False)
    specs = input_specs(problem.definition, workload)
    return limit_of(problem, workload, peaks, lambda: reference.flops(specs))


def _print(peaks: Peaks, rows: list[Row]) -> None:
    from swarm.report.render import microseconds

    out = stdout()
    gflops = ", ".join(f"{dtype} {value:,.0f}" for dtype, value in peaks.gflops.items())
    out.print(f"{peaks.device_model}: {peaks.bandwidth_gbps:.1f} GB/s; GFLOP/s: {gflops}", soft_wrap=True)
    out.print(peaks.source, style="dim", markup=False, soft_wrap=True)
    out.print()
    print_table(
        ("problem", "workload", "MFLOP", "MB", "T_SOL µs"),
        [
            (
                name,
                uuid,
                "–" if limit.flops is None else f"{limit.flops / 1e6:,.3g}",
                f"{limit.bytes / 1e6:,.3g}",
                microseconds(limit.t_sol_us),
            )
            for name, uuid, limit in rows
        ],
        right=frozenset(("MFLOP", "MB", "T_SOL µs")),
    )
