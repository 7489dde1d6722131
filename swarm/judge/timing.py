"""How long one call takes: samples until the interval is narrow, bounded by the judge's clock.

The runner's clock is a claim. Two others, which it cannot reach, bound it: the judge's own, and the time
that the cores spent on its process. What a request took by them, less what an empty candidate's takes beside
it, is what its calls took at most: a claim that is a little less is noise, and much less is a lie.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from swarm.judge.protocol import Call, Caller, Control, Sitting
from swarm.languages.protocol import Failure
from swarm.verdict import Status

TRIM = 0.25
"""Share of the samples left out at either end: interference adds, and a lucky call is no measure."""
Z_95 = 1.96
HIDDEN_US, HIDDEN_SHARE = 2.0, 0.05
REQUEST_SLACK_US = 15.0
"""Per request: how much slower an honest candidate's answer may be than the control's, as its own data fills
the caches."""
LINGER_S = 0.1
"""How long wrong outputs are given to become right by themselves, which then were late."""
MAX_WARM_UPS = 3
LEAST_REQUESTS = 6
"""Fewer have no median to speak of."""
UNEVEN = 1.1
"""Claims of one request are summed up where their mean is so much above the centre of all claims."""


class Contradicted(Failure):
    """The judge's clock saw more time than was claimed: a lie, or other work on the same cores."""


@dataclass(slots=True)
class Bound:
    """What the calls of each request took at most, by a clock that the candidate cannot reach."""

    call_us: list[float] = field(default_factory=list)
    """Per slot, less what the control took."""
    control_us: list[float] = field(default_factory=list)
    """Per slot, what the control took; its spread is the noise of the hour."""

    def note(self, request_us: float, control_us: float, slots: int) -> None:
        self.call_us.append((request_us - control_us - REQUEST_SLACK_US) / slots)
        self.control_us.append(control_us / slots)

    @property
    def whole_us(self) -> list[float]:
        """Per slot, with what any request takes: between two candidates that cancels out."""
        return [call + control for call, control in zip(self.call_us, self.control_us, strict=True)]

    def add(self, other: Bound) -> None:
        self.call_us += other.call_us
        self.control_us += other.control_us

    def hidden(self, claimed_us: float) -> tuple[float, float]:
        """Return how much more than claimed a call took, and how much of that may be noise."""
        if len(self.call_us) < LEAST_REQUESTS:
            return 0.0, math.inf
        centre, half_width = trimmed(self.call_us)
        low_us, _, high_us = statistics.quantiles(self.control_us, n=4)
        resolution_us = max(HIDDEN_US, HIDDEN_SHARE * claimed_us)
        return centre - claimed_us, resolution_us + half_width + high_us - low_us


@dataclass(slots=True)
class Samples:
    """The timed calls of one runner on one workload."""

    claimed_us: list[float] = field(default_factory=list)
    request_us: list[float] = field(default_factory=list)
    """The same by request: the mean of its claims."""
    wall: Bound = field(default_factory=Bound)
    """By the judge's clock."""
    busy: Bound = field(default_factory=Bound)
    """By the cores' time, which is hardly longer where others use them as well."""
    clocks: set[str] = field(default_factory=set)

    def add(self, other: Samples) -> None:
        self.claimed_us += other.claimed_us
        self.request_us += other.request_us
        self.wall.add(other.wall)
        self.busy.add(other.busy)
        self.clocks |= other.clocks

    @property
    def clock(self) -> str:
        """Name the clock they were read from."""
        return " and ".join(sorted(self.clocks))


@dataclass(frozen=True, slots=True)
class Timed:
    """The time of one call."""

    time_us: float
    ci_us: float
    """Half width of the 95 % interval."""
    calls: int
    clock: str = ""
    quick_us: float = math.inf
    """What a quarter of the calls took at most."""


def measure(
    sitting: Sitting[Any], caller: Caller, control: Control | None, rng: random.Random
) -> Timed | Failure:
    """Call until [tests] is satisfied, checking every call; return the time, or how it failed.

    Without a control the caller's claims are believed.
    """
    tests = sitting.tests
    deadline = time.monotonic() + tests.budget_s
    warm_ups = rng.randint(1, MAX_WARM_UPS)
    samples = Samples()
    done = 0
    least = tests.min_calls + warm_ups
    while True:
        slots = sitting.max_slots if len(samples.claimed_us) < tests.max_calls else 1
        calls = sitting.fill(rng.randint(1, slots))
        found = Samples()
        claims = request(caller, calls, control, found, rng)
        if isinstance(claims, Failure):
            return claims
        fully = [sitting.wants_comparison(call, done + at, least) for at, call in enumerate(calls, 1)]
        failure = inspected(sitting, caller, calls, fully)
        if failure is not None:
            return failure
        if done >= warm_ups and (not sitting.disturbance() or time.monotonic() > deadline):
            samples.add(found)
        done += len(calls)
        if samples.claimed_us and is_enough(samples, sitting, deadline):
            return finish(samples)


def request(
    caller: Caller, calls: Sequence[Call], control: Control | None, samples: Samples, rng: random.Random
) -> list[int] | Failure:
    """Make one request and note what it claims, and what it hid by the clock of the judge and the control."""
    control_first = rng.random() < 0.5
    slots = [call.slot for call in calls]
    overhead_us = control.overhead_us(slots) if control is not None and control_first else 0.0
    claims = caller.call(slots)
    if isinstance(claims, Failure):
        return claims
    samples.clocks.add(caller.clock)
    samples.claimed_us.extend(ns / 1e3 for ns in claims)
    samples.request_us.append(sum(claims) / 1e3 / len(claims))
    if control is not None:
        overhead_us = overhead_us if control_first else control.overhead_us(slots)
        samples.wall.note(caller.wall_ns / 1e3, overhead_us, len(claims))
        samples.busy.note(caller.busy_ns / 1e3, control.busy_us, len(claims))
    return claims


def inspected(
    sitting: Sitting[Any], caller: Caller, calls: Sequence[Call], fully: Sequence[bool]
) -> Failure | None:
    """Return what is wrong with `calls`, after a request; what becomes right by itself was late."""
    failure = sitting.inspect(calls, fully)
    if failure is None or failure.status is not Status.INCORRECT_NUMERICAL:
        return failure
    caller.linger(LINGER_S)
    if sitting.inspect(calls, [True] * len(calls)) is not None:
        return failure
    return Failure(
        Status.REWARD_HACK,
        f"its outputs were right {LINGER_S * 1e3:g} ms after the answer and not yet when it came: "
        f"work went on that nobody timed; {failure.reason}",
    )


def is_enough(samples: Samples, sitting: Sitting[Any], deadline: float) -> bool:
    tests = sitting.tests
    count = len(samples.claimed_us)
    if 0 < len(samples.wall.call_us) < LEAST_REQUESTS:  # claims that never vary must not end it before that
        return False
    if count < tests.min_calls or sitting.evidence.compared < min(tests.rounds, count):
        return False
    if count >= tests.max_calls or time.monotonic() >= deadline:
        return True
    centre, half_width = trimmed(samples.claimed_us)
    return half_width <= tests.ci_goal * centre


def finish(samples: Samples) -> Timed | Failure:
    """Return the time, unless the judge's clock or the cores' contradicts it.

    It is the centre of all claims, or of the requests' means if one call does the work of several: all slots
    of a request lie open at once, and a trimmed centre of calls would leave just that call out.
    """
    by_call, by_request = trimmed(samples.claimed_us), trimmed(samples.request_us)
    centre, half_width = by_request if by_request[0] > UNEVEN * by_call[0] else by_call
    claimed_us = max(by_call[0], by_request[0])
    for clock, bound, kind in (
        ("the clock of its cores", samples.busy, Failure),
        ("the judge's clock", samples.wall, Contradicted),
    ):
        hidden_us, allowed_us = bound.hidden(claimed_us)
        if hidden_us > allowed_us:
            return kind(
                Status.REWARD_HACK,
                f"it claims {claimed_us:.1f} us a call, but {clock} saw {hidden_us:.1f} us more than that, "
                f"where {allowed_us:.1f} us are allowed",
            )
    return Timed(centre, half_width, len(samples.claimed_us), samples.clock, _quartile(samples.claimed_us))


def _quartile(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 4]


def trimmed(samples: Sequence[float]) -> tuple[float, float]:
    """Return the trimmed mean and the half width of its 95 % interval (Tukey and McLaughlin's)."""
    ordered = sorted(samples)
    count = len(ordered)
    cut = int(TRIM * count)
    kept = ordered[cut : count - cut]
    centre = math.fsum(kept) / len(kept)
    if len(kept) < 2:
        return centre, math.inf
    low, high = kept[0], kept[-1]
    winsorized = [min(max(value, low), high) for value in ordered]
    deviation = statistics.stdev(winsorized)
    degrees = len(kept) - 1
    t = Z_95 + 2.4 / degrees  # close to Student's t for 3 and more degrees
    return centre, t * deviation / ((1 - 2 * cut / count) * math.sqrt(count))
