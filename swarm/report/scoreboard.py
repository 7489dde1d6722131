"""The rows of the scoreboard: arithmetic over histories, no files and no git.

All of a row's figures are over the problem's workloads: geometric means of times and ratios, the
arithmetic mean of SOL scores, in which a workload without a passing time counts 0.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median

from swarm.report.history import History
from swarm.sol import sol_score
from swarm.verdict import Status, Verdict, geometric_mean


@dataclass(frozen=True, slots=True)
class Row:
    """One problem; a figure is None where what it needs was not measured."""

    name: str
    t_seed_us: float | None
    t_b_us: float | None
    t_sol_us: float | None
    t_best_us: float | None
    speedup: float | None
    """T_b / T_best."""
    speedup_over_seed: float | None
    sol_score: float | None
    """None also where T_b is at or below T_SOL on every workload: S is undefined there."""
    share_of_limit: float | None
    """T_SOL / T_best."""
    verdicts: dict[str, int]
    champion: str | None
    is_weak: bool
    """Marked weak in problem.toml: a wrong answer passes, so its figures prove nothing."""


@dataclass(frozen=True, slots=True)
class Scoreboard:
    run: str
    device: str
    problems: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures a campaign is quoted by; over the problems that have a speedup and are not weak."""

    problems: int
    """Without the weak ones."""
    weak: int
    compared: int
    geometric_mean: float | None
    median: float | None
    above_1x: float | None
    above_2x: float | None
    sol_score: float | None
    share_of_limit: float | None


def scoreboard(run: str, device: str, histories: Sequence[History]) -> Scoreboard:
    """Compute the scoreboard of `run` on `device`, problems by name."""
    return Scoreboard(run, device, tuple(row(h) for h in sorted(histories, key=lambda h: h.name)))


def row(history: History) -> Row:
    best = _times(history.champion)
    seed = _times(history.seed)
    baseline = dict(history.baseline_us)
    limits = limits_of(history)
    above_zero = {uuid: limit for uuid, limit in limits.items() if limit > 0}
    return Row(
        name=history.name,
        t_seed_us=_mean(seed),
        t_b_us=_mean(baseline),
        t_sol_us=_mean(above_zero),
        t_best_us=_mean(best),
        speedup=_ratio(baseline, best),
        speedup_over_seed=_ratio(seed, best),
        sol_score=_score(history, best, baseline, limits),
        share_of_limit=_ratio(above_zero, {u: t for u, t in best.items() if limits.get(u) != 0}),
        verdicts=dict(sorted(Counter(v.status.value for v in history.verdicts).items())),
        champion=history.reigns[-1].commit if history.reigns else None,
        is_weak=history.is_weak,
    )


def summary(board: Scoreboard) -> Summary:
    """Sum `board` up in the figures that are quoted together."""
    counted = [r for r in board.problems if not r.is_weak]
    speedups = [r.speedup for r in counted if r.speedup is not None]
    scores = [r.sol_score for r in counted if r.sol_score is not None]
    shares = [r.share_of_limit for r in counted if r.share_of_limit is not None]
    count = len(speedups)
    return Summary(
        problems=len(counted),
        weak=len(board.problems) - len(counted),
        compared=count,
        geometric_mean=geometric_mean(speedups) if speedups else None,
        median=median(speedups) if speedups else None,
        above_1x=sum(s > 1 for s in speedups) / count if count else None,
        above_2x=sum(s > 2 for s in speedups) / count if count else None,
        sol_score=fmean(scores) if scores else None,
        share_of_limit=geometric_mean(shares) if shares else None,
    )


def to_json(board: Scoreboard) -> str:
    return json.dumps(asdict(board), indent=1, allow_nan=False) + "\n"


def workload_scores(history: History, verdict: Verdict | None) -> dict[str, float]:
    """Return S by workload uuid for `verdict`, without those where it is undefined; a failure is 0."""
    return _scores(_times(verdict), history.baseline_us, limits_of(history))


def limits_of(history: History) -> dict[str, float]:
    """Return T_SOL by workload, as last stated: a verdict that failed has it for some workloads only."""
    workloads = [w for verdict in history.verdicts for w in verdict.workloads]
    return {w.uuid: w.t_sol_us for w in workloads if w.t_sol_us is not None}


def scores_of(verdict: Verdict, baseline_us: Mapping[str, float]) -> dict[str, float]:
    """Return S by workload uuid for `verdict` alone, with the limits that it states."""
    limits = {w.uuid: w.t_sol_us for w in verdict.workloads if w.t_sol_us is not None}
    return _scores(_times(verdict), baseline_us, limits)


def _scores(
    times: Mapping[str, float], baseline_us: Mapping[str, float], limits: Mapping[str, float]
) -> dict[str, float]:
    scores = {}
    for uuid, t_b in baseline_us.items():
        if uuid in limits:
            score = sol_score(times.get(uuid), t_b, limits[uuid])
            if score is not None:
                scores[uuid] = score
    return scores


def _score(
    history: History, best: dict[str, float], baseline: dict[str, float], limits: dict[str, float]
) -> float | None:
    if not (best and baseline and limits):
        return None
    scores = workload_scores(history, history.champion)
    return fmean(scores.values()) if scores else None


def _times(verdict: Verdict | None) -> dict[str, float]:
    if verdict is None or verdict.status is not Status.PASSED:
        return {}
    return {w.uuid: w.time_us for w in verdict.workloads if w.time_us is not None}


def _mean(times: dict[str, float]) -> float | None:
    return geometric_mean(list(times.values())) if times else None


def _ratio(above: dict[str, float], below: dict[str, float]) -> float | None:
    """Geometric mean of above / below, None unless both cover the same workloads."""
    if not below or above.keys() != below.keys():
        return None
    return geometric_mean([above[uuid] / below[uuid] for uuid in below])
