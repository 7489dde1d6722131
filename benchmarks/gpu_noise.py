"""How often the judge of a GPU sees a difference where there is none, and how often it misses one of 2 %."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from benchmarks.gpu_jobs import Bench, Part, Row, arithmetic, quantile, rounds, with_workloads
from swarm.verdict import Comparison, Outcome
from tests.gpu import trees

SIZES = ((3, 64, 0.015), (30, 6900, 0.007), (300, 75_000, 0.002))
"""About how many us, with how many rows of 4096 bf16; and the widest 95 % range of the ratio."""
WANTED_US, DIFFERENCE = 60.0, 0.02
CALIBRATION = (4000, 12_000)
MIN_FOUND = 0.9


def same(bench: Bench, count: int) -> Part:
    """Compare one kernel with itself at three sizes in one sitting, until the time is over."""
    tree = trees.solution("rmsnorm/cuda")
    problem = with_workloads(trees.problem("rmsnorm"), [{"batch_size": rows} for _, rows, _ in SIZES])
    found: list[Comparison] = []
    for number in range(count):
        if bench.left_s < 0 and number > 1:
            break
        found.append(bench.comparison(problem, tree, tree, f"same-{number}"))
    outcomes = Counter(str(item.outcome) for item in found)
    each_s = sum(item.measured_s for item in found) / len(found)
    rows: list[Row] = []
    figures: dict[str, Any] = {"outcomes": dict(outcomes), "seconds_each": each_s}
    for us, batch, widest in SIZES:
        effect = trees.frozen(problem).protocol.tests.effect_at(us)
        ratios = [one for item in found for one in item.workloads if one.uuid.endswith(f"-{batch}")]
        centres = [one.ratio for one in ratios]
        width = quantile(centres, 0.975) - quantile(centres, 0.025)
        faster = sum(one.low > 1 + effect for one in ratios)
        seen = f"{100 * width:.2f} %, {faster} FASTER of {len(ratios)}"
        rows.append(
            (f"A/A at about {us} us", f"{100 * widest:.1f} %, 0", seen, width <= widest and not faster)
        )
        figures[str(us)] = {
            "range95": width,
            "faster": faster,
            "ratios": centres,
            "clocks": sorted({one.clock for one in ratios}),
        }
    whole = f"{outcomes[Outcome.FASTER]} FASTER of {len(found)}"
    rows.append(("  all three as one problem", "0", whole, not outcomes[Outcome.FASTER]))
    return Part(rows, figures)


def different(bench: Bench, count: int) -> Part:
    """Compare a kernel with one that really takes 2 % less time: less arithmetic on the same bytes."""
    problem = arithmetic()
    time_us = _calibrated(bench)
    slow = round(time_us.rounds_for(WANTED_US))
    fast = round(time_us.rounds_for(WANTED_US / (1 + DIFFERENCE)))
    found: list[Comparison] = []
    for number in range(count):
        if bench.left_s < 0 and number > 1:
            break
        made = bench.comparison(problem, rounds(slow), rounds(fast), f"two-percent-{number}")
        print(made.outcome, made.reason, file=sys.stderr)
        found.append(made)
    outcomes = Counter(str(item.outcome) for item in found)
    hits = outcomes[Outcome.FASTER]
    ratios = [item.ratio for item in found if item.ratio is not None]
    seen = f"{hits} of {len(found)}, ratio {min(ratios):.4f} to {max(ratios):.4f}"
    row: Row = (
        f"a true {DIFFERENCE:.0%} at {WANTED_US:g} us",
        "9 of 10",
        seen,
        hits >= MIN_FOUND * len(found),
    )
    return Part(
        [row],
        {"outcomes": dict(outcomes), "ratios": ratios, "rounds": [slow, fast], "us_per_round": time_us.slope},
    )


class _Line:
    """Time as a straight line over rounds, through two verdicts."""

    def __init__(self, time_us: Callable[[int], float]) -> None:
        low, high = CALIBRATION
        at_low, at_high = time_us(low), time_us(high)
        self.slope = (at_high - at_low) / (high - low)
        self.base = at_low - self.slope * low

    def rounds_for(self, us: float) -> float:
        return (us - self.base) / self.slope


def _calibrated(bench: Bench) -> _Line:
    def time_us(count: int) -> float:
        verdict, _ = bench.verdict(arithmetic(), rounds(count), f"rounds-{count}", min_calls=60)
        assert verdict.time_us is not None
        return verdict.time_us

    return _Line(time_us)
