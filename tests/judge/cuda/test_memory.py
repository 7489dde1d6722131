"""Arenas of GPU memory that a judge keeps from one job to the next."""

from __future__ import annotations

import pytest

from swarm.errors import Refused
from swarm.judge.cuda.memory import sized
from tests.judge.cuda.conftest import Bench


def test_an_arena_is_kept_for_smaller_work(bench: Bench) -> None:
    arena = bench.arena(4 << 20)
    assert sized(bench.context, arena, 1 << 20) is arena


def test_an_arena_that_was_closed_for_one_that_is_refused_is_never_used_again(bench: Bench) -> None:
    arena = bench.arena(4 << 20)
    with pytest.raises(Refused, match="do not fit"):
        sized(bench.context, arena, 1 << 50)
    bench.arenas.append(sized(bench.context, arena, 1 << 20))
    assert bench.arenas[-1] is not arena
    bench.write(bench.arenas[-1].address, b"usable")
    assert bench.read(bench.arenas[-1].address, 6) == b"usable"
