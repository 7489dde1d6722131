"""How long one call takes: samples until the interval is narrow, bounded by the judge's clock.

The runner's clock is a claim. What a request took by the judge's clock, less what it claims, less what an
empty candidate's request takes beside it, is time that the candidate hid: a little is noise, more is a lie.
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
MAX_WARM_UPS = 3
LEAST_REQUESTS = 6
"""Fewer have no median to speak of."""
UNEVEN = 1.1
"""Claims of one request are summed up where their mean is so much above the centre of all claims."""


class Contradicted(Failure):
    """The judge's clock saw more time than was claimed: a lie, or other work on the same cores."""


@dataclass(slots=True)
class Samples:
    """The timed calls of one runner on one workload."""

    claimed_us: list[float] = field(default_factory=list)
    request_us: list[float] = field(default_factory=list)
    """The same by request: the mean of its claims."""
    hidden_us: list[float] = field(default_factory=list)
    """Per request, per slot: wall time less claims, less the control's beside it."""
    control_us: list[float] = field(default_factory=list)
    """Per request, per slot: what the control's took; its spread is the noise of the hour."""
    clocks: set[str] = field(default_factory=set)

    def add(self, other: Samples) -> None:
        self.claimed_us += other.claimed_us
        self.request_us += other.request_us
        self.hidden_us += other.hidden_us
        self.control_us += other.control_us
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
        calls = sitting.fill(rng.randint(1, sitting.max_slots))
        found = Samples()
        claims = request(caller, calls, control, found, rng)
        if isinstance(claims, Failure):
            return claims
        fully = [sitting.wants_comparison(call, done + at, least) for at, call in enumerate(calls, 1)]
        failure = sitting.inspect(calls, fully)
        if failure is not None:
            return failure
        if done >= warm_ups and (not sitting.disturbance() or time.monotonic() > deadline):
            samples.add(found)
        done += len(calls)
        if samples.claimed_us and is_enough(samples.claimed_us, sitting, deadline):
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
        wall_us = caller.wall_ns / 1e3
        overhead_us = overhead_us if control_first else control.overhead_us(slots)
        hidden_us = wall_us - sum(claims) / 1e3 - overhead_us - REQUEST_SLACK_US
        samples.hidden_us.append(hidden_us / len(claims))
        samples.control_us.append(overhead_us / len(claims))
    return claims


def is_enough(claimed_us: Sequence[float], sitting: Sitting[Any], deadline: float) -> bool:
    tests = sitting.tests
    count = len(claimed_us)
    if count < tests.min_calls or sitting.evidence.compared < min(tests.rounds, count):
        return False
    if count >= tests.max_calls or time.monotonic() >= deadline:
        return True
    centre, half_width = trimmed(claimed_us)
    return half_width <= tests.ci_goal * centre


def finish(samples: Samples) -> Timed | Failure:
    """Return the time, unless the judge's clock contradicts it."""
    centre, half_width = _centre(samples)
    if len(samples.hidden_us) >= LEAST_REQUESTS:
        hidden_us = statistics.median(samples.hidden_us)
        low_us, _, high_us = statistics.quantiles(samples.control_us, n=4)
        allowed_us = max(HIDDEN_US, HIDDEN_SHARE * centre) + high_us - low_us
        if hidden_us > allowed_us:
            return Contradicted(
                Status.REWARD_HACK,
                f"it claims {centre:.1f} us a call, but the judge's clock saw {hidden_us:.1f} us more "
                f"than that, where {allowed_us:.1f} us are allowed",
            )
    return Timed(centre, half_width, len(samples.claimed_us), samples.clock)


def _centre(samples: Samples) -> tuple[float, float]:
    """Return the centre of all claims, or of the requests' means if one call does the work of several.

    All slots of a request lie open at once, so a candidate can do the work of all in one call: a trimmed
    centre of calls would then leave just that call out.
    """
    centre, half_width = trimmed(samples.claimed_us)
    by_request, its_half_width = trimmed(samples.request_us)
    if by_request > UNEVEN * centre:
        return by_request, its_half_width
    return centre, half_width


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
