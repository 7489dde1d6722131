"""What kernels are held against: peaks and baselines, measured where they are not known yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swarm.baseline import Baseline, load_baseline, save_baseline
from swarm.cli.devices import peaks_of
from swarm.cli.view import View
from swarm.contents import files_hash
from swarm.device import Device
from swarm.errors import BadInput
from swarm.judge import baseline as measuring
from swarm.layout import RunRoot
from swarm.problem import Problem
from swarm.report.render import microseconds
from swarm.verdict import JUDGE_VERSION, geometric_mean


def measure_references(
    root: RunRoot, device: Device, problems: Sequence[Problem], budget_s: float, view: View
) -> None:
    """Calibrate and measure what is not on file, baselines for about `budget_s` in all."""
    is_new = device.kind == "cpu" and not root.peaks(device.model).exists()
    peaks = peaks_of(root, device)
    if is_new:
        flops = peaks.gflops.get("float32", 0.0)
        view.say(
            f"calibrated {device.model}: {peaks.bandwidth_gbps:.1f} GB/s, {flops:.0f} GFLOP/s in float32"
        )
    wanted = [problem for problem in problems if not is_measured(root, device, problem)]
    if wanted:
        whose = wanted[0].name if len(wanted) == 1 else f"{len(wanted)} problems"
        view.say(f"measuring the baselines of {whose}, {budget_s:.0f} s at most")
        measure_baselines(
            root, device, wanted, budget_s, lambda baseline: view.say(f"  {sentence(baseline)}")
        )


def measure_baselines(
    root: RunRoot,
    device: Device,
    problems: Sequence[Problem],
    budget_s: float,
    tell: Callable[[Baseline], None],
) -> None:
    """Measure baselines and store each as it gets ready; go on where the last sitting ran out of time."""
    coordination = root.coordination.read_bytes()
    begun = {problem.name: one for problem in problems if (one := _begun(root, device, problem)) is not None}
    for baseline in measuring.measure(problems, coordination, device, root.build_cache, budget_s, begun):
        save_baseline(root, baseline)
        tell(baseline)


def _begun(root: RunRoot, device: Device, problem: Problem) -> Baseline | None:
    """Return the stored baseline if it is of these files and this judge, and time had run out."""
    try:
        stored = load_baseline(root, device.model, problem.name)
    except BadInput:
        return None
    if stored is None or not is_current(stored, problem) or all(one.is_done for one in stored.contenders):
        return None
    return stored


def is_measured(root: RunRoot, device: Device, problem: Problem) -> bool:
    """Say whether the stored baseline is of these very files and this judge; a broken one is not."""
    try:
        stored = load_baseline(root, device.model, problem.name)
    except BadInput:
        return False
    return stored is not None and stored.is_complete and is_current(stored, problem)


def is_current(stored: Baseline, problem: Problem) -> bool:
    """Say whether a stored baseline is of the problem's files as they are and of this judge."""
    return (stored.files, stored.judge_version) == (files_hash(problem.files), JUDGE_VERSION)


def sentence(baseline: Baseline) -> str:
    """Say in one line what a baseline came to."""
    parts = []
    for contender in baseline.contenders:
        times = list(contender.times_us.values())
        if times:
            parts.append(f"{contender.name} {microseconds(geometric_mean(times))} µs")
        else:
            parts.append(f"{contender.name} missing: {contender.missing}")
    return f"{baseline.problem}: {', '.join(parts)}"
