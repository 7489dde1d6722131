"""Is the candidate faster than the champion? Both in one sitting, call by call beside each other.

A quad is four requests, ABBA or BAAB at random: the first two do the same work (the same contents at the
same places, cold and poisoned again), the last two do other work. So drift cancels within a quad, and what
happens to one quad says nothing about the next. What a runner or a tree is does not matter here.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from swarm.judge.protocol import Call, Caller, Control, Sitting
from swarm.judge.timing import TRIM, Samples, finish, inspected, request, trimmed
from swarm.languages.protocol import Failure
from swarm.protocol import Tests
from swarm.verdict import Outcome, Trust, WorkloadRatio, geometric_mean

RESAMPLES = 2000
MAX_DROPPED = 1.0
"""Quads that a throttled device spoiled are made again, up to this share of all."""
CHAMPION, CANDIDATE = 0, 1
HOST_BELIEVED_US = 10.0
"""On a GPU: what the judge's clock lets pass as jitter is more than the whole of a shorter time."""
SEEN = 0.5
"""The part of a claimed gain that another clock must have seen, give or take its noise."""
CERTAIN = 0.2
"""No more quads are made once half the ratio's interval is this part of the least effect that counts."""


@dataclass(frozen=True, slots=True)
class SideFailure:
    """One of the two did not hold in this sitting."""

    side: int
    failure: Failure


@dataclass(slots=True)
class Quads:
    """What one workload's quads gave."""

    log_ratios: list[float] = field(default_factory=list)
    """log(champion / candidate), one per quad."""
    sides: tuple[Samples, Samples] = field(default_factory=lambda: (Samples(), Samples()))
    dropped: int = 0
    """Spoiled by the device and made again."""
    doubt: str = ""
    """Why another clock says otherwise; nothing is then decided."""


@dataclass(frozen=True, slots=True)
class Decision:
    outcome: Outcome
    reason: str
    ratio: float
    low: float
    high: float
    workloads: tuple[WorkloadRatio, ...]


def sit(
    sitting: Sitting[Any],
    callers: tuple[Sequence[Caller], Sequence[Caller]],
    controls: tuple[Control | None, Control | None],
    rng: random.Random,
) -> Quads | SideFailure:
    """Run the quads of one workload; `callers` are the champion's and the candidate's processes."""
    quads = Quads()
    pairs: list[tuple[Caller, Caller]] = []
    warm_up = _warm_up(sitting, callers, rng)
    if warm_up is not None:
        return warm_up
    while len(quads.log_ratios) < sitting.tests.quads or (
        len(quads.log_ratios) < sitting.most_quads and not is_certain(quads, sitting.tests)
    ):
        if not pairs:
            pairs = list(itertools.product(*callers))
            rng.shuffle(pairs)
        failure = _quad(sitting, pairs.pop(), quads, controls, rng)
        if failure is not None:
            return failure
    for side in (CHAMPION, CANDIDATE):
        timed = finish(quads.sides[side])
        if isinstance(timed, Failure):
            return SideFailure(side, timed)
    return quads


def decide(
    found: Mapping[str, Quads],
    tests: Tests,
    seed: int,
    trust: Trust = Trust.HOST,
    *,
    believed_us: float = 0.0,
) -> Decision:
    """Turn quads by workload into an outcome: bootstrap of the geometric mean of the trimmed ratios.

    `trust` is the candidate's; at HOST none of its workloads may take less than `believed_us`.
    """
    generator = torch.Generator().manual_seed(seed)
    resampled = {uuid: _resample(quads.log_ratios, generator) for uuid, quads in found.items()}
    workloads = tuple(
        WorkloadRatio(
            uuid,
            math.exp(trimmed(quads.log_ratios)[0]),
            *_interval(resampled[uuid], tests.confidence),
            len(quads.log_ratios),
            quads.sides[CANDIDATE].clock,
        )
        for uuid, quads in found.items()
    )
    ratio = geometric_mean([item.ratio for item in workloads])
    low, high = _interval(torch.stack(list(resampled.values())).mean(0), tests.confidence)
    champion_us = geometric_mean([trimmed(q.sides[CHAMPION].claimed_us)[0] for q in found.values()])
    outcome, reason = _outcome(ratio, low, high, workloads, tests.effect_at(champion_us), tests)
    if outcome is Outcome.FASTER and not tests.trusts(trust):
        outcome, reason = Outcome.UNDECIDED, f"faster, but [tests] wants more trust than {trust}: {reason}"
    shortest_us = min(trimmed(quads.sides[CANDIDATE].claimed_us)[0] for quads in found.values())
    if outcome is Outcome.FASTER and trust is Trust.HOST and shortest_us < believed_us:
        outcome, reason = (
            Outcome.UNDECIDED,
            f"faster, but {shortest_us:.2f} us is too short to believe the candidate's own code: {reason}",
        )
    doubts = [f"workload {uuid}: {quads.doubt}" for uuid, quads in found.items() if quads.doubt]
    if doubts and outcome is not Outcome.UNDECIDED:
        outcome, reason = Outcome.UNDECIDED, f"the clocks disagree, {doubts[0]}: {reason}"
    return Decision(outcome, reason, ratio, low, high, workloads)


def unseen_gain(quads: Quads, *, one_core: bool) -> str:
    """Say so where a clock that no candidate reaches saw less than half of the gain that is claimed.

    If there is one core it is that core's own: how busy several are says little about a call's time.
    """
    claimed_us = [trimmed(side.claimed_us)[0] for side in quads.sides]
    seen = [trimmed((side.busy if one_core else side.wall).whole_us) for side in quads.sides]
    gain_us = claimed_us[CHAMPION] - claimed_us[CANDIDATE]
    seen_us = seen[CHAMPION][0] - seen[CANDIDATE][0]
    noise_us = math.hypot(seen[CHAMPION][1], seen[CANDIDATE][1])
    if gain_us <= 0 or seen_us + noise_us >= SEEN * gain_us:
        return ""
    clock = "its core's clock" if one_core else "the judge's clock"
    return f"it claims to save {gain_us:.1f} us a call, and {clock} saw {seen_us:.1f} +- {noise_us:.1f} us"


def _outcome(
    ratio: float,
    low: float,
    high: float,
    workloads: Sequence[WorkloadRatio],
    effect: float,
    tests: Tests,
) -> tuple[Outcome, str]:
    found = f"ratio {ratio:.4f} (interval {low:.4f} to {high:.4f}, least gain {effect:.1%})"
    worst = min(workloads, key=lambda item: item.ratio)
    if low > 1 + effect:
        if worst.ratio < 1 / (1 + tests.max_workload_slowdown):
            slower = f"workload {worst.uuid} is {1 / worst.ratio - 1:.1%} slower"
            return Outcome.UNDECIDED, f"faster in the mean, but {slower}: {found}"
        return Outcome.FASTER, found
    if high < 1 / (1 + effect):
        return Outcome.SLOWER, found
    if low > 1 / (1 + effect) and high < 1 + effect:
        return Outcome.SAME, found
    return Outcome.UNDECIDED, f"the interval holds both a gain and none: {found}"


def is_certain(quads: Quads, tests: Tests) -> bool:
    """Say whether the ratio's interval is narrow beside the least effect, whatever the ratio."""
    effect = tests.effect_at(trimmed(quads.sides[CHAMPION].claimed_us)[0])
    return trimmed(quads.log_ratios)[1] <= CERTAIN * effect


def _warm_up(
    sitting: Sitting[Any], callers: tuple[Sequence[Caller], Sequence[Caller]], rng: random.Random
) -> SideFailure | None:
    """Let every process work once, checked: the first call finds code and stack pages missing."""
    for side, processes in enumerate(callers):
        for caller in processes:
            calls = sitting.fill(1)
            failure = _checked(sitting, caller, calls, None, Samples(), rng, fully=True)
            if failure is not None:
                return SideFailure(side, failure)
    return None


def _quad(
    sitting: Sitting[Any],
    pair: tuple[Caller, Caller],
    quads: Quads,
    controls: tuple[Control | None, Control | None],
    rng: random.Random,
) -> SideFailure | None:
    first = rng.choice((CHAMPION, CANDIDATE))
    count = min(rng.choice(sitting.quad_calls), sitting.max_slots)
    found = (Samples(), Samples())
    spoiled = False
    for order in ((first, 1 - first), (1 - first, first)):
        calls = sitting.fill(count)
        fully = sitting.wants_comparison(calls[0], len(quads.log_ratios), sitting.tests.quads)
        for turn, side in enumerate(order):
            if turn == 1:
                sitting.renew(calls)
            failure = _checked(sitting, pair[side], calls, controls[side], found[side], rng, fully=fully)
            if failure is not None:
                return SideFailure(side, failure)
        spoiled = bool(sitting.disturbance()) or spoiled
    if spoiled and quads.dropped < MAX_DROPPED * sitting.tests.quads:
        quads.dropped += 1
        return None
    for side in (CHAMPION, CANDIDATE):
        quads.sides[side].add(found[side])
    spent_us = [math.fsum(side.claimed_us) for side in found]
    quads.log_ratios.append(math.log(spent_us[CHAMPION] / spent_us[CANDIDATE]))
    return None


def _checked(
    sitting: Sitting[Any],
    caller: Caller,
    calls: Sequence[Call],
    control: Control | None,
    samples: Samples,
    rng: random.Random,
    *,
    fully: bool,
) -> Failure | None:
    claims = request(caller, calls, control, samples, rng)
    if isinstance(claims, Failure):
        return claims
    return inspected(sitting, caller, calls, [fully] * len(calls))


def _resample(log_ratios: Sequence[float], generator: torch.Generator) -> torch.Tensor:
    """Return RESAMPLES trimmed means of samples drawn with replacement."""
    values = torch.tensor(log_ratios, dtype=torch.float64)
    count = len(values)
    drawn = values[torch.randint(count, (RESAMPLES, count), generator=generator)].sort(dim=1).values
    cut = int(TRIM * count)
    return drawn[:, cut : count - cut].mean(dim=1)


def _interval(log_ratios: torch.Tensor, confidence: float) -> tuple[float, float]:
    tail = (1 - confidence) / 2
    low, high = torch.quantile(log_ratios, torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return math.exp(low), math.exp(high)
