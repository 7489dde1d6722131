"""Search over a [tune] space: which point to measure next, given what was measured.

A space is the product of the listed values. Nothing is kept between two questions: the study is built anew
from the known points each time, so that a restart goes on exactly where it stopped.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

Value = int | float | str
Point = tuple[int, ...]
"""One index into the values of each parameter."""

STARTUP_POINTS = 4
"""Points far apart that are taken before anything else."""
SAMPLER_EVERY = 4
"""Every so many points Optuna's sampler chooses; between them a neighbour of the best is taken. On spaces of
a few hundred points and ten or twenty trials that ends nearer to the optimum than the sampler alone, which
still explores at that stage, and the sampler leads out of local optima."""
ASKS = 8
"""How often the sampler may come back with a known point before a neighbour of the best is taken."""
LARGE_SPACE = 4096
"""Points up to which a space is listed rather than sampled."""
FAILURE_FACTOR = 3.0
"""A point that failed counts as so much slower than the slowest that passed."""


@dataclass(frozen=True, slots=True)
class Space:
    names: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]

    def __len__(self) -> int:
        return math.prod(map(len, self.values)) if self.names else 0

    def point(self, params: Mapping[str, Value]) -> Point | None:
        """Return where `params` lie in this space; None if any of them is not a listed value."""
        try:
            return tuple(
                values.index(params[name]) for name, values in zip(self.names, self.values, strict=True)
            )
        except (KeyError, ValueError):
            return None

    def params(self, point: Point) -> dict[str, Value]:
        return {
            name: values[index] for name, values, index in zip(self.names, self.values, point, strict=True)
        }

    def points(self) -> Iterator[Point]:
        return itertools.product(*(range(len(values)) for values in self.values))

    def is_ordered(self, axis: int) -> bool:
        """Say whether neighbours in the list are likely to behave alike: numbers that rise or fall."""
        numbers = [value for value in self.values[axis] if isinstance(value, int | float)]
        rising = sorted(numbers)
        return len(numbers) == len(self.values[axis]) > 2 and numbers in (rising, rising[::-1])


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one point; neither pending nor timed: it failed."""

    time_us: float | None = None
    is_pending: bool = False


def propose(space: Space, known: Mapping[Point, Known], seed: str) -> Point | None:
    """Return a point that is not in `known`, the same for the same arguments; None if none is left."""
    if all(point in known for point in space.points()):
        return None
    number = int.from_bytes(hashlib.sha256(f"{seed}\0{len(known)}".encode()).digest()[:4], "big")
    dice = random.Random(number)
    if len(known) < STARTUP_POINTS or all(item.time_us is None for item in known.values()):
        return _spread(space, known, dice)
    if len(known) % SAMPLER_EVERY == 0:
        for point in _asked(space, known, number):
            if point not in known:
                return point
    return _neighbour(space, known, dice)


def _asked(space: Space, known: Mapping[Point, Known], seed: int) -> Iterator[Point]:
    import optuna  # 0.3 s that only a tuner at work should pay
    from optuna.exceptions import ExperimentalWarning

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = _distributions(space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # both options are, in older versions
        sampler = optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=0, multivariate=True, constant_liar=True
        )
    study = optuna.create_study(sampler=sampler)
    study.add_trials([_trial(space, point, item, known, distributions) for point, item in known.items()])
    for _ in range(ASKS):
        params = study.ask(distributions).params
        yield tuple(params[name] for name in space.names)


def _distributions(space: Space) -> dict[str, BaseDistribution]:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return {
        name: IntDistribution(0, len(values) - 1)
        if space.is_ordered(axis)
        else CategoricalDistribution(range(len(values)))
        for axis, (name, values) in enumerate(zip(space.names, space.values, strict=True))
    }


def _trial(
    space: Space,
    point: Point,
    item: Known,
    known: Mapping[Point, Known],
    distributions: dict[str, BaseDistribution],
) -> FrozenTrial:
    from optuna.trial import TrialState, create_trial

    slowest_us = max(other.time_us for other in known.values() if other.time_us is not None)
    time_us = item.time_us if item.time_us is not None else slowest_us * FAILURE_FACTOR
    return create_trial(
        params=dict(zip(space.names, point, strict=True)),
        distributions=distributions,
        state=TrialState.RUNNING if item.is_pending else TrialState.COMPLETE,
        value=None if item.is_pending else math.log(time_us),
    )


def _neighbour(space: Space, known: Mapping[Point, Known], dice: random.Random) -> Point:
    """Return an unknown point that differs as little as possible from the best known one."""
    times = {point: item.time_us for point, item in known.items() if item.time_us is not None}
    best = min(times, key=times.__getitem__)

    def distance(point: Point) -> tuple[int, float]:
        return sum(a != b for a, b in zip(point, best, strict=True)), dice.random()

    return min(_unknown(space, known, dice), key=distance)


def _spread(space: Space, known: Mapping[Point, Known], dice: random.Random) -> Point:
    """Return an unknown point far from the known ones: of some random points, the loneliest."""
    unknown = _unknown(space, known, dice)
    picks = dice.sample(unknown, min(len(unknown), 16))

    def loneliness(point: Point) -> int:
        return min((sum(a != b for a, b in zip(point, other, strict=True)) for other in known), default=0)

    return max(picks, key=loneliness)


def _unknown(space: Space, known: Mapping[Point, Known], dice: random.Random) -> list[Point]:
    """Return the unknown points; of a space too large to list, a random sample of them."""
    if len(space) <= LARGE_SPACE:
        return [point for point in space.points() if point not in known]
    drawn = (tuple(dice.randrange(len(values)) for values in space.values) for _ in range(LARGE_SPACE))
    found = [point for point in drawn if point not in known]
    return found or [next(point for point in space.points() if point not in known)]
