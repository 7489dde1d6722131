"""The judge's memory: placed at random without overlap, present at once, and not the runner's to resize."""

from __future__ import annotations

import os
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import Refused
from swarm.judge.arena import ALIGNMENT, PAGE, Arena, needed, place


@given(
    st.lists(st.integers(0, 100_000), min_size=1, max_size=12),
    st.integers(0, 5000),
    st.integers(0, 1 << 20),
    st.integers(),
)
def test_places_are_aligned_guarded_and_apart(sizes: list[int], guard: int, spare: int, seed: int) -> None:
    room = needed(sizes, guard) + spare
    offsets = place(sizes, room, guard, random.Random(seed))
    ranges = sorted((offset, offset + size) for offset, size in zip(offsets, sizes, strict=True))
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    assert ranges[0][0] >= guard
    assert ranges[-1][1] + guard <= room
    assert all(after[0] - before[1] >= guard for before, after in pairwise(ranges))


def test_places_differ_from_call_to_call() -> None:
    dice = random.Random(1)
    assert len({tuple(place([1000, 2000], 1 << 20, 256, dice)) for _ in range(50)}) == 50


def test_too_little_room_is_an_error() -> None:
    with pytest.raises(ValueError, match="need"):
        place([1000], 1000, 256, random.Random(1))


def test_size_is_sealed_and_pages_are_present() -> None:
    with Arena(10 * PAGE + 1) as arena:
        assert arena.size == 11 * PAGE
        for size in (0, 12 * PAGE):
            with pytest.raises(PermissionError):
                os.ftruncate(arena.fd, size)
        assert os.fstat(arena.fd).st_blocks * 512 == arena.size


def test_what_does_not_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(Refused, match=r"1048576 MiB do not fit 85%"):
        Arena(1 << 40)
