"""`swarm problems show`: a problem as a person would write it down, and what is known of it on one device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from swarm.cli.context import device_option, json_option, print_json, print_table, root_of, stderr, stdout
from swarm.errors import BadInput
from swarm.foreign import one_line, plain

if TYPE_CHECKING:
    from swarm.definition import TensorSpec
    from swarm.device import Device
    from swarm.layout import RunRoot
    from swarm.problem import Limits, Problem
    from swarm.verdict import Verdict
    from swarm.workload import Workload

NOTE_CHARS = 160


@dataclass(slots=True)
class Known:
    """What is known of a problem on one device model; remarks say what is not."""

    device_model: str
    workloads: tuple[Workload, ...] = ()
    t_sol_us: dict[str, float] = field(default_factory=dict)
    """By workload uuid, as everything below."""
    t_b_us: dict[str, float] = field(default_factory=dict)
    t_b_by: dict[str, str] = field(default_factory=dict)
    """Which contender T_b is of."""
    best: Verdict | None = None
    best_run: str = ""
    remarks: list[str] = field(default_factory=list)

    @property
    def best_us(self) -> dict[str, float]:
        found = () if self.best is None else self.best.workloads
        return {one.uuid: one.time_us for one in found if one.time_us is not None}


@click.command()
@click.argument("name", metavar="PROBLEM")
@click.option(
    "--device-model",
    metavar="MODEL",
    help="What is known on this GPU, which need not be here, for example nvidia-h200.",
)
@device_option
@json_option
@click.pass_context
def show(ctx: click.Context, name: str, device_model: str | None, device: str | None, as_json: bool) -> None:
    """Show what PROBLEM is, how closely it is checked, and what is known of it.

    Known are T_SOL, T_b and the best verdict of any run here, on the device that is here or --device-model.
    """
    from swarm.cli.sol import device_of
    from swarm.problem import load_problem
    from swarm.protocol import read_protocol

    root = root_of(ctx)
    problem = load_problem(root.problem(name))
    tests = read_protocol(root.coordination.read_bytes(), root.coordination.name).tests
    known = _known(root, problem, device_of(root, device_model, device))
    limits = {
        workload.uuid: problem.limits(workload, tests)
        for workload in (*problem.workloads, *problem.cpu_workloads)
    }
    if as_json:
        print_json(_as_json(problem, limits, known))
    else:
        _print(problem, limits, known)


def summary(problem: Problem) -> dict[str, Any]:
    """Return the little that a list shows."""
    return {
        "name": problem.name,
        "is_weak": problem.settings.weak,
        "family": problem.settings.family,
        "description": problem.definition.description or "",
        "seeds": sorted(problem.seeds),
        "workloads": len(problem.workloads),
        "cpu_workloads": len(problem.cpu_workloads),
    }


def _known(root: RunRoot, problem: Problem, device: Device) -> Known:
    known = Known(device.model)
    try:
        known.workloads = problem.workloads_on(device)
    except BadInput as error:
        known.remarks.append(f"{error.what}; --device-model nvidia-h200 shows what is known on such a GPU")
        return known
    _add_limits(known, root, problem, device)
    _add_baseline(known, root, problem)
    _add_best(known, root, problem)
    return known


def _add_limits(known: Known, root: RunRoot, problem: Problem, device: Device) -> None:
    from swarm.cli.devices import peaks_of
    from swarm.cli.sol import explained
    from swarm.device import cpu_device
    from swarm.judge.reference import InvalidReference, References

    with stderr().status("counting what the reference computes"), References(cpu_device()) as references:
        try:
            peaks = peaks_of(root, device)
            for workload in known.workloads:
                limit = explained(problem, workload, peaks, references).limit
                known.t_sol_us[workload.uuid] = limit.t_sol_us
        except (BadInput, InvalidReference) as error:
            known.remarks.append(f"T_SOL is not known: {error}")


def _add_baseline(known: Known, root: RunRoot, problem: Problem) -> None:
    from swarm.baseline import load_baseline
    from swarm.cli.references import is_current

    try:
        stored = load_baseline(root, known.device_model, problem.name)
    except BadInput as error:
        known.remarks.append(f"T_b is not known: {error}")
        return
    if stored is None or not is_current(stored, problem):
        why = "has not been measured" if stored is None else "is of other files or an older judge"
        known.remarks.append(f"T_b {why}; type: swarm baseline {problem.name}")
        return
    known.t_b_us = stored.times_us
    for uuid, time_us in known.t_b_us.items():
        known.t_b_by[uuid] = next(c.name for c in stored.contenders if c.times_us.get(uuid) == time_us)
    known.remarks += stored.remarks


def _add_best(known: Known, root: RunRoot, problem: Problem) -> None:
    """Look for the quickest verdict on these very files in all runs; a verdict is no comparison."""
    from swarm.hub import epoch_hash
    from swarm.ledger import Ledger
    from swarm.verdict import JUDGE_VERSION, Status

    epoch = epoch_hash({**problem.files, root.coordination.name: root.coordination.read_bytes()})
    wanted = (Status.PASSED, epoch, JUDGE_VERSION, known.device_model)
    for folder in root.runs_with_results():
        with Ledger(root.run(folder.name)) as ledger:
            for one in ledger.verdicts(problem.name):
                found = (one.status, one.epoch, one.judge_version, one.environment.device_model)
                if found == wanted and one.time_us is not None:
                    least = None if known.best is None else known.best.time_us
                    if least is None or one.time_us < least:
                        known.best, known.best_run = one, folder.name
    if known.best is None:
        known.remarks.append("no run here has a passing verdict on these files")


def _as_json(problem: Problem, limits: dict[str, Limits], known: Known) -> dict[str, Any]:
    from dataclasses import asdict

    best = known.best
    return {
        **summary(problem),
        "definition": problem.definition.model_dump(mode="json"),
        "workloads": [w.model_dump(mode="json") for w in problem.workloads],
        "cpu_workloads": [w.model_dump(mode="json") for w in problem.cpu_workloads],
        "settings": problem.settings.model_dump(mode="json"),
        "limits": {uuid: asdict(one) for uuid, one in limits.items()},
        "known": {
            "device_model": known.device_model,
            "t_sol_us": known.t_sol_us,
            "t_b_us": known.t_b_us,
            "t_b_by": known.t_b_by,
            "best_us": known.best_us,
            "best": None
            if best is None
            else {"run": known.best_run, "commit": best.commit, "tree": best.tree, "language": best.language},
            "remarks": known.remarks,
        },
    }


def _print(problem: Problem, limits: dict[str, Limits], known: Known) -> None:
    def say(text: str = "", style: str = "") -> None:
        stdout().print(text, style=style or None, markup=False, soft_wrap=True)

    settings = problem.settings
    say(problem.name, "bold")
    say(one_line(problem.definition.description or "", 400))
    kinds = [settings.family, settings.op_class if settings.op_class != settings.family else None]
    kinds += ["irregular" if settings.irregular else None, settings.licence]
    kinds.append(f"seeds: {' '.join(sorted(problem.seeds)) or 'none'}")
    say(f"{one_line(settings.source or 'no source is named', 400)}; {', '.join(filter(None, kinds))}", "dim")
    if settings.weak:
        say("weak: a wrong answer passes, so no headline figure counts it", "yellow")
    say()
    for line in signature(problem):
        say(line)
    say()
    for line in tolerances(problem, limits):
        say(line)
    for workloads, where in ((problem.cpu_workloads, "a CPU"), (problem.workloads, "a GPU")):
        if workloads:
            say()
            is_known = workloads == known.workloads
            _print_workloads(problem, workloads, known.device_model if is_known else where, known, is_known)
    say()
    for line in _told(known):
        say(line)
    say()
    say(plain(problem.reference.strip()))


def signature(problem: Problem) -> Iterator[str]:
    """Yield the problem as a function with typed tensors, and what its axes are."""
    definition = problem.definition
    drawn = problem.settings.inputs
    rows = [(f"{n}: {_type(s)}", s, drawn.get(n, "")) for n, s in definition.inputs.items()]
    results = [(f"{n}: {_type(s)}", s, "") for n, s in definition.outputs.items()]
    width = max(len(text) for text, _, _ in (*rows, *results))
    yield f"{problem.name}("
    for text, spec, how in rows:
        notes = filter(None, (spec.description or "", f"drawn from {how}" if how else ""))
        yield f"    {text:<{width}}  {one_line('; '.join(notes), NOTE_CHARS)}".rstrip()
    yield ") -> ("
    for text, spec, _ in results:
        yield f"    {text:<{width}}  {one_line(spec.description or '', NOTE_CHARS)}".rstrip()
    yield ")"
    if definition.custom_inputs_entrypoint:
        yield f"inputs are made by {definition.custom_inputs_entrypoint} of the reference"
    if definition.axes:
        yield "where"
        sizes = {name: f"{name}{_size(axis)}" for name, axis in definition.axes.items()}
        width = max(map(len, sizes.values()))
        for name, axis in definition.axes.items():
            note = one_line(axis.description or "", NOTE_CHARS)
            yield f"    {sizes[name]:<{width}}  {note}".rstrip()


def _type(spec: TensorSpec) -> str:
    return f"{spec.dtype} scalar" if spec.shape is None else f"{spec.dtype}[{', '.join(spec.shape)}]"


def _size(axis: Any) -> str:
    match axis.type:
        case "const":
            return f" = {axis.value}"
        case "expr":
            return f" = {one_line(axis.expression, NOTE_CHARS)}"
        case _:
            return " varies"


def tolerances(problem: Problem, limits: dict[str, Limits]) -> Iterator[str]:
    """Yield how closely outputs must match, and what they are held against."""
    distinct = list(dict.fromkeys(limits.values()))
    for one in distinct:
        text = f"|got - expected| <= {one.atol:g} + {one.rtol:g} * |expected|"
        text += f" for {100 * one.required_matched_ratio:g} % of each output's elements"
        if one.max_error_cap is not None:
            text += f", and {one.max_error_cap:g} at most"
        if one.allow_negative_inf:
            text += "; -inf matches -inf"
        if len(distinct) > 1:
            text += f" (workload {', '.join(uuid for uuid, found in limits.items() if found == one)})"
        yield text
    source = (
        "reference.py"
        if problem.fast_reference is None
        else "fast_reference.py, lint's equal of reference.py"
    )
    wider = " in the next wider float type" if problem.settings.reference_precision == "higher" else ""
    yield f"expected is the result of {source}{wider}"


def _print_workloads(
    problem: Problem, workloads: tuple[Workload, ...], where: str, known: Known, is_known: bool
) -> None:
    from swarm.report.render import microseconds, percent

    axes = problem.definition.runtime_axes
    scalars = [name for name in problem.definition.inputs if any(name in w.scalars for w in workloads)]
    measured = ("T_SOL µs", "T_b µs", "best µs", "of limit") if is_known else ()
    rows = []
    for workload in workloads:
        sizes, values = problem.definition.resolve(workload), workload.scalars
        row = [one_line(workload.uuid, 40), *(str(sizes[name]) for name in axes)]
        row += [f"{values[name]:g}" if name in values else "drawn" for name in scalars]
        if is_known:
            limit, best = known.t_sol_us.get(workload.uuid), known.best_us.get(workload.uuid)
            row += map(microseconds, (limit, known.t_b_us.get(workload.uuid), best))
            row.append(percent(limit / best if limit is not None and best else None))
        rows.append(tuple(row))
    headings = (f"workload on {where}", *axes, *scalars, *measured)
    print_table(headings, rows, right=frozenset(headings[1:]))


def _told(known: Known) -> Iterator[str]:
    """Yield whose the times are, and what is not known."""
    if known.t_b_by:
        yield f"T_b: {', '.join(sorted(set(known.t_b_by.values())))}"
    if known.best is not None:
        best = known.best
        where = f"commit {best.commit[:10]} of run {known.best_run}, {best.language}"
        yield f"best: {where}, by its verdict alone"
    yield from known.remarks
