"""A request waits until what somebody else left on the GPU is over, and not for ever."""

from __future__ import annotations

import itertools

import pytest

from swarm.errors import Refused
from swarm.judge.cuda.quiet import LIMIT_S, Quiet

MS = 1_000_000


class Device:
    """Round trips that take so long, one after the other; the last for ever after."""

    def __init__(self, *trips_ms: float) -> None:
        self.now_ns = 0
        self.made = 0
        self._trips = itertools.chain(trips_ms, itertools.repeat(trips_ms[-1]))
        self.quiet = Quiet(self._trip, lambda: self.now_ns)

    def _trip(self) -> None:
        self.made += 1
        self.now_ns += round(next(self._trips) * MS)


def test_a_quiet_gpu_costs_three_round_trips() -> None:
    device = Device(0.02)
    device.quiet.wait()
    assert device.made == 3


def test_work_of_others_is_waited_for_even_where_a_trip_hits_the_end_of_its_turn() -> None:
    device = Device(0.02, 0.02, 1.4, 0.1, 1.9, 0.2, 0.1, 1.1, 0.03, 0.02, 0.03)
    device.quiet.wait()
    assert device.made == 11


def test_a_slow_host_is_not_taken_for_a_busy_gpu() -> None:
    device = Device(2.0, 3.0, 2.5)
    device.quiet.wait()
    assert device.made == 3


def test_it_is_refused_to_measure_beside_work_without_an_end() -> None:
    device = Device(0.02, 0.02, 0.02, 1.2)
    device.quiet.wait()
    with pytest.raises(Refused, match="at work for somebody else"):
        device.quiet.wait()
    assert LIMIT_S * 1e9 < device.now_ns < 2 * LIMIT_S * 1e9
