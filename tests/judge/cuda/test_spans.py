"""CUPTI's records to spans: by the order of launches, whatever ran at the same time."""

from __future__ import annotations

import itertools
import random

import pytest

from swarm.judge.cuda.spans import MEMSET, Record, Span, Unreadable
from swarm.judge.cuda.spans import spans as spans_and_outside

Launch = tuple[str, int, int]
OURS: list[Launch] = [("swarm_spin", 0, 10), ("swarm_flush_write", 10, 20), ("swarm_flush_read", 20, 30)]


def records(*calls: list[Launch]) -> list[Record]:
    """Lay out requests' calls one after the other; a launch is (name, start, end) within its call."""
    numbers = itertools.count(100)
    found: list[Record] = []
    for index, launches in enumerate(calls):
        at = index * 1000
        for name, start, end in [*OURS, ("swarm_open", 30, 31), *launches, ("swarm_close", 900, 901)]:
            found.append(Record(name, at + start, at + end, next(numbers), 2))
    return found


def spans(given: list[Record], count: int) -> list[Span]:
    found, outside = spans_and_outside(given, count)
    assert outside == len(OURS) * count
    return found


def test_a_span_is_from_the_first_start_to_the_last_end() -> None:
    seen = spans(records([("a", 40, 60), ("b", 50, 90), ("c", 55, 58)], [("a", 40, 45)]), 2)
    assert [(span.ns, span.activities, span.blocks) for span in seen] == [(50, 3, 6), (5, 1, 2)]


def test_the_order_in_which_records_arrive_does_not_matter() -> None:
    ordered = records([("a", 40, 60), ("b", 60, 90)], [("a", 41, 60), ("b", 61, 90)])
    shuffled = random.Random(1).sample(ordered, len(ordered))
    assert spans(shuffled, 2) == spans(ordered, 2)


def test_work_that_runs_into_the_next_call_belongs_to_the_call_that_launched_it() -> None:
    late, prompt = spans(records([("a", 40, 60), ("side", 45, 1500)], [("a", 40, 60)]), 2)
    assert late.ns == 1460
    assert prompt.ns == 20


def test_nodes_of_a_graph_share_a_number_and_are_all_counted() -> None:
    seen = records([("a", 40, 60), ("b", 60, 70)])
    number = next(record.correlation for record in seen if record.name == "a")
    graph = [
        Record(r.name, r.start_ns, r.end_ns, number if r.name in "ab" else r.correlation, 1) for r in seen
    ]
    [span] = spans(graph, 1)
    assert (span.ns, span.activities) == (30, 2)


def test_signatures_tell_other_kernels_and_another_order() -> None:
    one, same, other, swapped, fewer = spans(
        records(
            [("a", 40, 60), ("b", 60, 70)],
            [("a", 41, 65), ("b", 66, 70)],
            [("a", 40, 60), (MEMSET, 60, 70)],
            [("b", 40, 60), ("a", 60, 70)],
            [("a", 40, 60)],
        ),
        5,
    )
    assert one.signature == same.signature
    assert len({one.signature, other.signature, swapped.signature, fewer.signature}) == 4


def test_a_call_that_did_nothing_has_no_span() -> None:
    [span] = spans(records([]), 1)
    assert (span.ns, span.activities) == (0, 0)


def test_lost_records_and_false_marks_are_noticed() -> None:
    whole = records([("a", 40, 60)], [("a", 40, 60)])
    for without in ("swarm_open", "swarm_close"):
        index = next(i for i, record in enumerate(whole) if record.name == without)
        with pytest.raises(Unreadable):
            spans(whole[:index] + whole[index + 1 :], 2)
    for name in ("swarm_close", "swarm_open"):
        with pytest.raises(Unreadable):
            spans(records([("a", 40, 50), (name, 50, 51), ("b", 52, 90)]), 1)
    with pytest.raises(Unreadable):
        spans([], 1)


def test_what_runs_outside_the_calls_is_counted() -> None:
    whole = records([("a", 40, 60)], [("a", 40, 60)])
    last = whole[-1]
    more = [
        Record("b", 5, 6, 1, 1),
        Record(MEMSET, last.end_ns + 5, last.end_ns + 6, last.correlation + 1),
        Record("swarm_spin", last.end_ns + 7, last.end_ns + 8, last.correlation + 2),
    ]
    found, outside = spans_and_outside([*whole, *more], 2)
    assert [span.activities for span in found] == [1, 1]
    assert outside == 2 * len(OURS) + 3, "whatever its name: the runner knows how many are its own"


def test_a_kernel_named_like_ours_is_work_of_its_call() -> None:
    [span] = spans(records([("a", 40, 50), ("swarm_spin", 50, 90)]), 1)
    assert (span.ns, span.activities) == (50, 2)


@pytest.mark.parametrize(
    ("launches", "early_ns", "late_ns"),
    [
        ([("a", 31, 900)], 0, 0),
        ([("a", 40, 60), ("b", 60, 700)], 0, 0),
        ([("side", 12, 80), ("join", 80, 82)], 19, 0),
        ([("a", 40, 60), ("side", 50, 950)], 0, 50),
        ([("side", 0, 1900)], 31, 1000),
    ],
)
def test_what_is_at_work_outside_its_calls_marks_is_seen(
    launches: list[Launch], early_ns: int, late_ns: int
) -> None:
    [span] = spans(records(launches), 1)
    assert (span.early_ns, span.late_ns) == (early_ns, late_ns)
