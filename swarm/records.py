"""Does a record hold together? What the judge's own never fail, and one that came from elsewhere may.

Says nothing about whose record it is; that follows from the run it is for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from swarm.layout import NAME
from swarm.problem import Problem
from swarm.verdict import Comparison, Environment, Outcome, Status, Verdict, verdict_key

MAX_TEXT_CHARS = 65_536
LARGEST_US = 1e12


def is_time(value: float) -> bool:
    """Say whether `value` can be a time in microseconds."""
    return math.isfinite(value) and 0 < value < LARGEST_US


def verdict_fault(verdict: Verdict, problem: Problem) -> str:
    """Say what cannot be in a verdict on a solution of `problem`; empty if all can."""
    environment = verdict.environment
    if verdict.key != verdict_key(
        verdict.tree, verdict.epoch, environment.device_model, verdict.judge_version
    ):
        return "its key does not follow from tree, epoch, judge version and device model"
    fault = _common_fault(environment, (verdict.reason, verdict.log, verdict.seed, verdict.language))
    fault = fault or _seconds_fault((verdict.created_s, verdict.measured_s, verdict.total_s))
    fault = fault or _workloads_fault([one.uuid for one in verdict.workloads], problem)
    if fault:
        return fault
    for one in verdict.workloads:
        optional = (one.ci_us, one.t_sol_us, one.max_abs_error, one.max_rel_error, one.matched_ratio)
        numbers = [value for value in optional if value is not None]
        if not all(math.isfinite(value) and value >= 0 for value in numbers) or one.calls < 0:
            return f"a figure of workload {one.uuid} is none"
        if one.time_us is not None and not is_time(one.time_us):
            return f"the time of workload {one.uuid} is {one.time_us}"
        if len(one.reason) > MAX_TEXT_CHARS:
            return f"the reason of workload {one.uuid} is too long"
    if verdict.status is Status.PASSED:
        if any(one.status is not Status.PASSED for one in verdict.workloads):
            return "it passed though one of its workloads did not"
        return _complete_fault([one.uuid for one in verdict.workloads], problem)
    return ""


def comparison_fault(comparison: Comparison, problem: Problem) -> str:
    """Say what cannot be in a comparison of two solutions of `problem`; empty if all can."""
    pair = f"{comparison.champion_tree[:8]}-{comparison.candidate_tree[:8]}"
    if comparison.id.rpartition("-")[0] != pair or comparison.champion_tree == comparison.candidate_tree:
        return "its id does not follow from its trees"
    fault = _common_fault(comparison.environment, (comparison.reason, comparison.seed))
    fault = fault or _seconds_fault((comparison.created_s, comparison.measured_s))
    uuids = [one.uuid for one in comparison.workloads]
    fault = fault or _workloads_fault(uuids, problem)
    if fault:
        return fault
    if not comparison.seed:
        return "it has no seed, by which it could be told from others"
    intervals = [(one.low, one.ratio, one.high) for one in comparison.workloads]
    found = (comparison.low, comparison.ratio, comparison.high)
    if None not in found:
        intervals.append(found)  # type: ignore[arg-type]  # none of them is None
    elif found != (None, None, None):
        return "its interval is incomplete"
    if not all(_is_interval(*interval) for interval in intervals):
        return "a ratio or its interval is none"
    if any(one.quads < 1 for one in comparison.workloads):
        return "a workload has no quads"
    return _outcome_fault(comparison) or (_complete_fault(uuids, problem) if comparison.ratio else "")


def _outcome_fault(comparison: Comparison) -> str:
    decided = comparison.outcome is not Outcome.UNDECIDED
    if comparison.ratio is None or comparison.low is None or comparison.high is None:
        return f"{comparison.outcome} without a ratio" if decided else ""
    if comparison.failure is not None:
        return "it has a ratio though the candidate failed"
    if comparison.outcome is Outcome.FASTER and comparison.low <= 1:
        return f"FASTER with an interval from {comparison.low}"
    if comparison.outcome is Outcome.SLOWER and comparison.high >= 1:
        return f"SLOWER with an interval to {comparison.high}"
    return ""


def _is_interval(low: float, ratio: float, high: float) -> bool:
    # The centre of few samples may lie a little outside of its bootstrap interval.
    return (
        all(math.isfinite(value) and 0 < value < LARGEST_US for value in (low, ratio, high)) and low <= high
    )


def _common_fault(environment: Environment, texts: Iterable[str]) -> str:
    if not NAME.fullmatch(environment.device_model):
        return "its device model is not a name"
    if any(len(text) > MAX_TEXT_CHARS for text in (*texts, environment.trust_reason)):
        return "one of its texts is too long"
    numbers = [value for value in environment.facts.values() if not isinstance(value, str)]
    return "" if all(map(math.isfinite, numbers)) else "one of its facts is not a number"


def _seconds_fault(seconds: Iterable[float]) -> str:
    return (
        "" if all(math.isfinite(s) and s >= 0 for s in seconds) else "one of its durations or dates is none"
    )


def _workloads_fault(uuids: list[str], problem: Problem) -> str:
    known = {one.uuid for one in (*problem.workloads, *problem.cpu_workloads)}
    strange = [uuid for uuid in uuids if uuid not in known]
    if strange:
        return f"workload {strange[0][:60]!r} is not one of {problem.name}"
    return "" if len(set(uuids)) == len(uuids) else "it has a workload twice"


def _complete_fault(uuids: list[str], problem: Problem) -> str:
    """Say that workloads are missing: all of one kind of device must be there."""
    for workloads in (problem.workloads, problem.cpu_workloads):
        if workloads and {one.uuid for one in workloads} == set(uuids):
            return ""
    return "it does not have all workloads"
