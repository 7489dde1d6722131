"""Which clock times a workload's calls: one choice for all runners that are compared on it.

CUPTI slows kernels a little for each of their blocks; events read some microseconds too much, by an offset
that differs from process to process. So CUPTI times what is short. What is longer events time, unless two
candidates of about as many blocks are compared: what CUPTI costs then cancels, and the offset would not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from swarm.judge.cuda.wire import Clock

CUPTI_BELOW_US = 20.0
CUPTI_PAIRS_BELOW_US = 100.0
EQUAL_BLOCKS, UNLIKE_BLOCKS = 1.25, 4.0
"""Ratios of the blocks of two candidates."""
LEAST_SPIN_NS, MAX_SPIN_NS = 150_000, 100_000_000
NAMES = {Clock.EVENTS: "events", Clock.CUPTI: "CUPTI"}

Key = tuple[tuple[str, int], ...]


@dataclass(slots=True)
class _Side:
    """What the first, discarded calls of one candidate showed."""

    ns: float = math.inf
    blocks: int = 0


@dataclass(slots=True)
class ClockChoice:
    """One workload's clock: undecided until somebody asks for it, and the same ever after."""

    sides: dict[int, _Side] = field(default_factory=dict)
    doubt: str = ""
    """Why the choice may favour one side."""
    _clock: Clock | None = None

    def observe(self, side: int, ns: int, blocks: int) -> None:
        """Note what a first request showed, by events less their offset."""
        seen = self.sides.setdefault(side, _Side())
        seen.ns = min(seen.ns, ns)
        seen.blocks = max(seen.blocks, blocks)

    @property
    def clock(self) -> Clock:
        if self._clock is None:
            self._clock = self._decide()
        return self._clock

    @property
    def is_decided(self) -> bool:
        return self._clock is not None

    def _decide(self) -> Clock:
        if not self.sides:
            return Clock.EVENTS
        shortest_us = min(side.ns for side in self.sides.values()) / 1e3
        longest_us = max(side.ns for side in self.sides.values()) / 1e3
        likeness = self._likeness()
        if shortest_us < CUPTI_BELOW_US:
            if likeness > UNLIKE_BLOCKS:
                self.doubt = f"one side has {likeness:.1f} times the blocks of the other, which CUPTI taxes"
            return Clock.CUPTI
        if len(self.sides) > 1 and longest_us < CUPTI_PAIRS_BELOW_US and likeness <= EQUAL_BLOCKS:
            return Clock.CUPTI
        return Clock.EVENTS

    def _likeness(self) -> float:
        """Return by what factor the sides' blocks differ; infinite if a side's are not known."""
        if len(self.sides) < 2:
            return 1.0
        counts = [side.blocks for side in self.sides.values()]
        return max(counts) / min(counts) if min(counts) > 0 else math.inf


class Clocks:
    """The clocks of one job's workloads, shared by all its runners."""

    def __init__(self, only: Clock | None = None) -> None:
        """`only` times all workloads, whatever they take."""
        self._only = only
        self._offset_ns: float | None = None
        self._is_spoiled = False
        self._choices: dict[Key, ClockChoice] = {}

    @property
    def offset_ns(self) -> float:
        """What is taken off what events read."""
        return self._offset_ns or 0.0

    def settle(self, offset_ns: float) -> None:
        """Take off so much from now on, unless this job takes off something already."""
        if self._offset_ns is None:
            self._offset_ns = offset_ns

    def spoil(self) -> None:
        """Say that a request was timed by another clock than its workload's."""
        self._is_spoiled = True

    def spoiled(self) -> str:
        """Say why times since the last call of this are worth nothing, if they are."""
        was, self._is_spoiled = self._is_spoiled, False
        return "CUPTI looked on" if was else ""

    def of(self, axes: Mapping[str, int]) -> ClockChoice:
        """Return the choice for the workload with these axes."""
        return self._choices.setdefault(tuple(sorted(axes.items())), ClockChoice(_clock=self._only))

    def doubts(self, axes: Mapping[str, int]) -> str:
        """Say why the choice for the workload with these axes may favour one side."""
        return self.of(axes).doubt

    def facts(self) -> dict[str, str | float | int]:
        """Say for the record which clocks were used, for how many workloads each, and what is in doubt."""
        decided = [choice for choice in self._choices.values() if choice.is_decided]
        counts = {
            f"{name}_workloads": sum(choice.clock is clock for choice in decided)
            for clock, name in NAMES.items()
        }
        doubts = sorted({choice.doubt for choice in decided if choice.doubt})
        facts: dict[str, str | float | int] = {"event_offset_us": round(self.offset_ns / 1e3, 3), **counts}
        return facts | ({"clock_doubt": "; ".join(doubts)} if doubts else {})


def spin_ns(enqueue_ns: int) -> int:
    """Return how long the GPU must wait before a call that takes so long to queue."""
    return min(MAX_SPIN_NS, LEAST_SPIN_NS + 2 * max(0, enqueue_ns))
