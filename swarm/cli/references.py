"""What kernels are held against: peaks and baselines, measured where they are not known yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from swarm.baseline import Baseline, Optimised, load_baseline, save_baseline
from swarm.cli.devices import peaks_of
from swarm.cli.view import View
from swarm.contents import files_hash
from swarm.device import Device
from swarm.errors import BadInput
from swarm.hub import Hub, epoch_hash
from swarm.judge import baseline as measuring
from swarm.layout import RunPaths, RunRoot
from swarm.problem import Problem
from swarm.report.render import microseconds
from swarm.solution import Language, load_manifest
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
    optimised: Mapping[str, Optimised] = measuring.NONE_OPTIMISED,
) -> None:
    """Measure baselines and store each as it gets ready; go on where the last sitting ran out of time.

    Of a problem with an `optimised` contender nothing else is measured that is on file.
    """
    coordination = root.coordination.read_bytes()
    begun = {}
    for problem in problems:
        stored = _stored(root, device, problem)
        is_begun = stored is not None and not all(one.is_done for one in stored.contenders)
        if stored is not None and (is_begun or problem.name in optimised):
            begun[problem.name] = stored
    for baseline in measuring.measure(
        problems, coordination, device, root.build_cache, budget_s, begun, optimised
    ):
        save_baseline(root, baseline)
        tell(baseline)


def pytorch_champions(
    root: RunRoot, paths: RunPaths, problems: Sequence[Problem]
) -> tuple[dict[str, Optimised], list[str]]:
    """Return a run's champions in PyTorch, by problem, and why the others have none."""
    found, remarks = {}, []
    with Hub(paths) as hub:
        heads = hub.champions()
        for problem in problems:
            files = {**problem.files, root.coordination.name: root.coordination.read_bytes()}
            if problem.name not in heads:
                remarks.append(f"{problem.name}: not in run {paths.run}")
            elif hub.epoch(problem.name).hash != epoch_hash(files):
                remarks.append(f"{problem.name}: run {paths.run} has other files of it")
            else:
                solution = hub.solution_files(heads[problem.name])
                language = load_manifest(solution).language
                if language is Language.PYTORCH:
                    found[problem.name] = Optimised(heads[problem.name], solution)
                else:
                    remarks.append(f"{problem.name}: the champion of run {paths.run} is in {language}")
    return found, remarks


def is_measured(root: RunRoot, device: Device, problem: Problem, champion: Optimised | None = None) -> bool:
    """Say whether the stored baseline is whole, and has the champion if there is one to be timed."""
    stored = _stored(root, device, problem)
    if stored is None or not stored.is_complete:
        return False
    return champion is None or champion.name in [one.name for one in stored.optimised]


def _stored(root: RunRoot, device: Device, problem: Problem) -> Baseline | None:
    """Return the stored baseline if it is of these very files and this judge; a broken one is not."""
    try:
        stored = load_baseline(root, device.model, problem.name)
    except BadInput:
        return None
    return stored if stored is not None and is_current(stored, problem) else None


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
