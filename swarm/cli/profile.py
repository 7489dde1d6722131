"""What `swarm bench --sass` and `--profile` need to be possible, and how a profile is shown to a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from swarm.cli.context import print_table, stdout
from swarm.errors import BadInput, Refused

if TYPE_CHECKING:
    from swarm.device import Device
    from swarm.judge.build import Frozen
    from swarm.layout import RunRoot
    from swarm.verdict import Comparison, Verdict
    from swarm.workload import Workload

COLUMNS = ("section", "metric", "value", "unit")


def check_wishes(files: Mapping[str, bytes], device: Device, *, sass: bool, profile: bool) -> None:
    """Raise before anything is measured, if what is wished for cannot be had here."""
    from swarm.languages import cuda_toolkit
    from swarm.solution import Language, load_manifest

    if profile and device.kind != "cuda":
        raise BadInput("only a GPU's kernels are profiled", where="--profile", remedy="use perf on a CPU")
    if profile:
        from swarm.judge.cuda.profile import check_profiler

        check_profiler()
    if not sass:
        return
    language = load_manifest(files).language
    if language not in (Language.CUDA, Language.CUDA_CPP):
        remedy = "it is for cuda and cuda_cpp"
        raise BadInput(f"{language} has no machine code before it runs", where="--sass", remedy=remedy)
    if cuda_toolkit.disassembler() is None:
        raise Refused("no nvdisasm on this machine", where="--sass", remedy="type: swarm doctor")


def profiled(
    root: RunRoot,
    rules: Frozen,
    files: Mapping[str, bytes],
    device: Device,
    record: Verdict | Comparison,
) -> dict[str, Any]:
    """Return the profile of the slowest workload, for --json; no kernels of a tree that does not build."""
    from swarm.judge.build import build
    from swarm.judge.cuda.profile import profile
    from swarm.languages.protocol import Failure

    built = build(files, rules, device, root.build_cache)
    workload = _slowest(rules, device, record)
    if isinstance(built, Failure):
        return {"workload": workload.uuid, "kernels": []}
    found = profile(built.artifact, rules.problem, workload, device)
    return {"workload": workload.uuid, "kernels": [asdict(one) for one in found]}


def show(told: Mapping[str, Any]) -> None:
    """Print what `profiled` returned for a person."""
    out = stdout()
    for kernel in told["kernels"]:
        head = f"\n{kernel['kernel']}  grid {kernel['grid']}  block {kernel['block']}  ({told['workload']})"
        out.print(head, style="bold", markup=False, soft_wrap=True)
        rows = [(one["section"], one["name"], one["value"], one["unit"]) for one in kernel["metrics"]]
        print_table(COLUMNS, _once(rows), right=frozenset(("value",)))
        for text in kernel["advice"]:
            out.print(f"· {text}", markup=False, soft_wrap=True)


def _slowest(rules: Frozen, device: Device, record: Verdict | Comparison) -> Workload:
    """Return the workload that takes longest; the first if none has a time."""
    from swarm.verdict import Verdict

    workloads = rules.problem.workloads_on(device)
    times = {}
    if isinstance(record, Verdict):
        times = {one.uuid: one.time_us for one in record.workloads if one.time_us is not None}
    return max(workloads, key=lambda one: times.get(one.uuid, 0.0))


def _once(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Name each section in its first row only."""
    before = ["", *(row[0] for row in rows)]
    return [("" if row[0] == last else row[0], *row[1:]) for row, last in zip(rows, before, strict=False)]
