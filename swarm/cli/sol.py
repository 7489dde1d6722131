"""`swarm sol`: a device's peaks, and the speed of light of each workload.

Nothing runs on the device: FLOPs are counted on the CPU from shapes alone, and a GPU's peaks are published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from swarm.cli.context import (
    device_option,
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
    from swarm.device import Device
    from swarm.judge.limit import Explanation
    from swarm.judge.reference import References
    from swarm.layout import RunRoot
    from swarm.problem import Problem
    from swarm.sol import Peaks
    from swarm.workload import Workload

    Row = tuple[Problem, Workload, Explanation]

LARGE_GFLOPS = 1e4
"""With such a rate in float32 all are told in TFLOP/s."""


@click.command()
@click.argument("names", metavar="[PROBLEM]...", nargs=-1)
@click.option(
    "--device-model",
    metavar="MODEL",
    help="Of this GPU, which need not be here, for example nvidia-h200; otherwise of a --device that is.",
)
@click.option("--explain", is_flag=True, help="Show where each limit comes from, term by term.")
@device_option
@json_option
@click.pass_context
def sol(
    ctx: click.Context,
    names: tuple[str, ...],
    device_model: str | None,
    explain: bool,
    device: str | None,
    as_json: bool,
) -> None:
    """Show the peaks of a device and the limit of every workload.

    All problems if none is named.
    """
    from swarm.cli.devices import peaks_of
    from swarm.device import cpu_device
    from swarm.judge.reference import InvalidReference, References

    root = root_of(ctx)
    of = device_of(root, device_model, device)
    problems, broken = load_chosen(root, names, of)
    with (
        stderr().status("counting what the references compute"),
        References(cpu_device()) as references,
    ):
        peaks = peaks_of(root, of)
        rows: list[Row] = []
        for problem in problems:
            try:
                rows.extend(
                    (problem, workload, explained(problem, workload, peaks, references))
                    for workload in problem.workloads_on(of)
                )
            except BadInput as error:
                broken.append(error)
            except InvalidReference as error:
                broken.append(BadInput(str(error), remedy="correct it"))
    if as_json:
        print_json({"peaks": asdict(peaks), "limits": [_as_json(*row, explain) for row in rows]})
    else:
        _print_peaks(peaks)
        if explain:
            for row in rows:
                _print_explanation(*row, peaks)
        else:
            _print_limits(rows)
    raise_left_out(broken)


def device_of(root: RunRoot, model: str | None, name: str | None) -> Device:
    """Return the device that is meant; one that is known by its model alone need not be here."""
    from swarm.cli.devices import chosen_devices, device_model
    from swarm.config import load_config
    from swarm.device import Device, cpu_device

    if model is None:
        return chosen_devices(name or load_config(root).run.device)[0]
    cpu = cpu_device()
    return cpu if model == cpu.model else Device("cuda", device_model(model), "", ())


def explained(problem: Problem, workload: Workload, peaks: Peaks, references: References) -> Explanation:
    """Return the limit of a workload with its terms; the reference is loaded only if it must be counted."""
    from swarm.judge.limit import explain
    from swarm.judge.reference import input_specs

    def count() -> Mapping[str, float]:
        reference = references.get(problem.name, problem.name, problem.definition, is_wider=False)
        return reference.flops(input_specs(problem.definition, workload))

    return explain(problem, workload, peaks, count)


def _as_json(problem: Problem, workload: Workload, explained: Explanation, explain: bool) -> dict[str, Any]:
    shown = {"problem": problem.name, "is_weak": problem.settings.weak, "workload": workload.uuid}
    shown |= asdict(explained.limit)
    if explain:
        terms = asdict(explained)
        del terms["limit"]
        shown["explanation"] = {**terms, "bound": explained.bound}
    return shown


def _print_peaks(peaks: Peaks) -> None:
    out = stdout()
    is_large = peaks.gflops.get("float32", 0.0) >= LARGE_GFLOPS
    unit, scale = ("TFLOP/s", 1e3) if is_large else ("GFLOP/s", 1.0)
    rates = ", ".join(f"{dtype} {value / scale:,.5g}" for dtype, value in peaks.gflops.items())
    out.print(f"{peaks.device_model}: {peaks.bandwidth_gbps:.1f} GB/s; {unit}: {rates}", soft_wrap=True)
    out.print(peaks.source, style="dim", markup=False, soft_wrap=True)
    out.print()


def _print_limits(rows: list[Row]) -> None:
    from swarm.report.render import microseconds
    from swarm.settings import labelled

    print_table(
        ("problem", "workload", "MFLOP", "MB", "T_SOL µs"),
        [
            (
                labelled(problem.name, problem.settings.weak),
                workload.uuid,
                "–" if explained.limit.flops is None else f"{explained.limit.flops / 1e6:,.3g}",
                f"{explained.limit.bytes / 1e6:,.3g}",
                microseconds(explained.limit.t_sol_us),
            )
            for problem, workload, explained in rows
        ],
        right=frozenset(("MFLOP", "MB", "T_SOL µs")),
    )


def _print_explanation(problem: Problem, workload: Workload, explained: Explanation, peaks: Peaks) -> None:
    from swarm.judge.limit import Bound
    from swarm.report.render import microseconds, quantity

    axes = ", ".join(f"{name}={size}" for name, size in problem.definition.resolve(workload).items())
    stdout().print(f"{problem.name}, workload {workload.uuid}: {axes}", markup=False, soft_wrap=True)
    limit, here = explained.limit, "← this binds"
    is_by_bytes = explained.bound is Bound.BYTES
    rows = [(f"  {term.what}", quantity(term.amount, "B"), "", "", "") for term in explained.bytes]
    peak = f"at {peaks.bandwidth_gbps:,.0f} GB/s"
    by_bytes = microseconds(explained.bytes_us)
    rows.append(("all bytes", quantity(limit.bytes, "B"), peak, by_bytes, here if is_by_bytes else ""))
    if explained.remark:
        rows.append((f"FLOPs: {explained.remark}", "", "", "", ""))
    elif limit.flops is not None:
        rows += [(f"  {term.what}", quantity(term.amount, "FLOP"), "", "", "") for term in explained.flops]
        peak = f"at {peaks.gflops[explained.dtype]:,.0f} GFLOP/s ({explained.dtype})"
        by_flops = microseconds(explained.flops_us)
        rows.append(("all FLOPs", quantity(limit.flops, "FLOP"), peak, by_flops, "" if is_by_bytes else here))
    floor = f"quarantined below {microseconds(limit.floor_us)}"
    rows.append(("T_SOL", "", "", microseconds(limit.t_sol_us), floor))
    print_table(("term", "amount", "peak", "µs", ""), rows, right=frozenset(("amount", "µs")))
    stdout().print()
