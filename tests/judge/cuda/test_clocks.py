"""Which clock times what: decided once for a workload, by what its first, discarded calls showed."""

from __future__ import annotations

import pytest

from swarm.judge.cuda.clocks import LEAST_SPIN_NS, MAX_SPIN_NS, ClockChoice, Clocks, spin_ns
from swarm.judge.cuda.wire import Clock


def choice(*sides: tuple[float, int]) -> ClockChoice:
    """Return the choice after each side showed (microseconds, blocks)."""
    made = ClockChoice()
    for side, (us, blocks) in enumerate(sides):
        made.observe(side, round(us * 1e3), blocks)
    return made


@pytest.mark.parametrize(
    ("sides", "clock"),
    [
        ([(3, 132)], Clock.CUPTI),
        ([(19.9, 132)], Clock.CUPTI),
        ([(20.1, 132)], Clock.EVENTS),
        ([(60, 2048), (61, 2048)], Clock.CUPTI),
        ([(60, 2048), (61, 2100)], Clock.CUPTI),
        ([(60, 2048), (61, 132)], Clock.EVENTS),
        ([(60, 0), (61, 0)], Clock.EVENTS),
        ([(99, 132), (101, 132)], Clock.EVENTS),
        ([(19, 132), (30, 132)], Clock.CUPTI),
        ([], Clock.EVENTS),
    ],
)
def test_short_calls_and_alike_pairs_are_timed_by_cupti(sides: list[tuple[float, int]], clock: Clock) -> None:
    assert choice(*sides).clock is clock


def test_a_choice_stays() -> None:
    made = choice((30, 132))
    assert made.clock is Clock.EVENTS
    made.observe(0, 3_000, 132)
    assert made.clock is Clock.EVENTS


def test_the_shortest_of_a_side_counts() -> None:
    made = choice((900, 132))
    made.observe(0, 5_000, 132)
    assert made.clock is Clock.CUPTI


def test_unlike_grids_below_20_us_are_in_doubt() -> None:
    unlike, alike = choice((10, 132), (10, 132 * 8)), choice((10, 132), (10, 132 * 3))
    assert unlike.clock is alike.clock is Clock.CUPTI
    assert "8.0 times the blocks" in unlike.doubt
    assert not alike.doubt


def test_a_job_has_one_choice_for_each_workload() -> None:
    clocks = Clocks()
    clocks.settle(2500.0)
    clocks.settle(9000.0)
    assert clocks.of({"n": 1, "m": 2}) is clocks.of({"m": 2, "n": 1})
    assert clocks.of({"n": 1, "m": 2}) is not clocks.of({"n": 2, "m": 2})
    clocks.of({"n": 1, "m": 2}).observe(0, 4_000, 1)
    assert clocks.of({"n": 1, "m": 2}).clock is Clock.CUPTI
    assert clocks.facts() == {"event_offset_us": 2.5, "events_workloads": 0, "CUPTI_workloads": 1}


def test_the_gpu_waits_for_what_takes_long_to_queue() -> None:
    assert spin_ns(0) == spin_ns(-5) == LEAST_SPIN_NS
    assert spin_ns(1_000_000) == LEAST_SPIN_NS + 2_000_000
    assert spin_ns(10**12) == MAX_SPIN_NS


def test_one_clock_may_be_set_for_all() -> None:
    clocks = Clocks(Clock.EVENTS)
    clocks.of({"n": 1}).observe(0, 3_000, 1)
    assert clocks.of({"n": 1}).clock is Clock.EVENTS
