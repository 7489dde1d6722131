"""`swarm problems extract`: the hot parts of a model as problems; `swarm.extract` runs the model."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from swarm.cli.context import (
    device_option,
    json_option,
    print_json,
    print_table,
    root_of,
    stderr,
    stdout,
)
from swarm.errors import BadInput

if TYPE_CHECKING:
    from swarm.device import Device
    from swarm.extract.found import Findings, Found
    from swarm.problem import Problem
    from swarm.sol import Peaks

    Row = tuple[Found, Problem, bool, float]
    """What was found, as what problem, whether that is new, and T_SOL of all its calls in µs."""


@click.command()
@click.argument("model", metavar="FILE.PY:BUILD")
@click.option(
    "--inputs",
    required=True,
    metavar="FILE.PY:EXAMPLE",
    help="Returns what the model is called with: a tensor, a tuple, a dict, or a tuple of these two.",
)
@click.option("--backward", is_flag=True, help="The gradients too, as problems of their own.")
@click.option("--top", default=8, show_default=True, type=click.IntRange(1), help="So many problems at most.")
@click.option("--name", help="What the problems' names begin with; otherwise the file's name.")
@click.option(
    "--read",
    "readable",
    multiple=True,
    type=click.Path(exists=True, path_type=Path, resolve_path=True),
    help="What else the model's code reads, for example its weights; may be given several times.",
)
@device_option
@json_option
@click.pass_context
def extract(
    ctx: click.Context,
    model: str,
    inputs: str,
    backward: bool,
    top: int,
    name: str | None,
    readable: tuple[Path, ...],
    device: str | None,
    as_json: bool,
) -> None:
    """Make problems of what takes the most time in a model of yours.

    BUILD returns the model, a torch.nn.Module as it is used: call .eval() there unless it is trained. It is
    exported by torch.export, cut, and timed on the device; layers that repeat count as one.
    """
    from swarm.cli.devices import chosen_devices, peaks_of
    from swarm.config import load_config
    from swarm.extract import folder
    from swarm.extract.process import Wanted, find

    root = root_of(ctx)
    wanted = Wanted(model, inputs, top, backward, readable)
    file, function = wanted.files[0], model.rpartition(":")[2]
    prefix, source = name or file.stem, f"{file.name}:{function}"
    if not re.match(r"[A-Za-z]", prefix):
        raise BadInput(f"no problem can be named {prefix!r}", where="--name", remedy="begin with a letter")
    of = chosen_devices(device or load_config(root).run.device)[0]
    with stderr().status("starting") as status:
        found = find(wanted, of, status.update)
        if not found.found:
            raise BadInput("nothing in it can be a problem", where=model, remedy=_left(found) or None)
        status.update("what the device could do")
        peaks = peaks_of(root, of)
        rows: list[Row] = []
        for problem_name, one in zip(folder.names(prefix, found.found), found.found, strict=True):
            problem = folder.make(problem_name, one, source, of)
            is_new = folder.write(root.problem(problem_name), problem)
            rows.append((one, problem, is_new, _floor_us(one, problem, peaks)))
    if as_json:
        print_json(_json(found, rows, of))
    else:
        _print(found, rows, of)


def _floor_us(found: Found, problem: Problem, peaks: Peaks) -> float:
    """Return T_SOL of all the calls that the model makes."""
    from swarm.judge.limit import limit_of

    limits = (
        limit_of(problem, workload, peaks, partial(float, case.flops))
        for case, workload in zip(found.cases, problem.workloads, strict=True)
    )
    return sum(case.count * limit.t_sol_us for case, limit in zip(found.cases, limits, strict=True))


def _json(found: Findings, rows: list[Row], device: Device) -> dict[str, Any]:
    return {
        "device": device.model,
        "model_us": found.model_us,
        "regions_us": found.regions_us,
        "problems": [
            {
                "name": problem.name,
                "is_new": is_new,
                "direction": one.direction,
                "count": sum(case.count for case in one.cases),
                "places": [place for case in one.cases for place in case.places],
                "total_us": one.total_us,
                "share": one.total_us / found.regions_us if found.regions_us else None,
                "t_sol_us": floor_us,
                "headroom": one.total_us / floor_us if floor_us else None,
            }
            for one, problem, is_new, floor_us in rows
        ],
        "left_out": [left.model_dump() for left in found.left],
    }


def _print(found: Findings, rows: list[Row], device: Device) -> None:
    from swarm.cli.devices import describe
    from swarm.report.render import microseconds

    out = stdout()
    out.print(
        f"the model takes {microseconds(found.model_us)} µs on {describe([device])}; "
        f"its parts, one by one, {microseconds(found.regions_us)} µs",
        markup=False,
        soft_wrap=True,
    )
    out.print()
    print_table(
        ("problem", "calls", "µs", "share", "T_SOL µs", "headroom", "first in"),
        [
            (
                problem.name + ("" if is_new else " (was there)"),
                str(sum(case.count for case in one.cases)),
                microseconds(one.total_us),
                f"{100 * one.total_us / found.regions_us:.1f} %",
                microseconds(floor_us),
                f"{one.total_us / floor_us:.1f} ×" if floor_us else "–",
                one.path or "the model itself",
            )
            for one, problem, is_new, floor_us in rows
        ],
        right=frozenset(("calls", "µs", "share", "T_SOL µs", "headroom")),
    )
    if found.left:
        out.print()
        for left in found.left:
            out.print(f"left out: {left.where}: {left.what}", style="dim", markup=False, soft_wrap=True)


def _left(found: Findings) -> str:
    return "; ".join(f"{left.where}: {left.what}" for left in found.left[:3])
