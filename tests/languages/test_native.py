"""The trusted native code does what it says to memory; how fast, only a calibration can tell."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm.errors import Refused
from swarm.judge.arena import Arena
from swarm.languages import native, toolchain
from swarm.languages.native import Native, Pattern

SIZE = 1 << 20


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Native:
    return native.load(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def arena() -> Iterator[Arena]:
    with Arena(2 * SIZE) as memory:
        memory.memory[:SIZE] = random.Random(1).randbytes(SIZE)
        yield memory


def test_flushing_and_walking_change_nothing(library: Native, arena: Arena) -> None:
    before = arena.memory[:]
    library.flush(arena.address + 3, SIZE - 5)
    library.walk(arena.address, SIZE)
    assert arena.memory[:] == before


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("pattern", [Pattern.COPY, Pattern.STREAMED_COPY])
def test_copies_copy_everything(library: Native, arena: Arena, pattern: Pattern, threads: int) -> None:
    assert library.bandwidth_ns(pattern, arena.address + SIZE, arena.address, SIZE, threads) > 0
    assert arena.memory[SIZE:] == arena.memory[:SIZE]


@pytest.mark.parametrize("pattern", [Pattern.WRITE, Pattern.STREAMED_WRITE])
def test_writes_reach_every_line(library: Native, arena: Arena, pattern: Pattern) -> None:
    arena.memory[SIZE:] = b"\xaa" * SIZE
    before = arena.memory[:SIZE]
    library.bandwidth_ns(pattern, arena.address + SIZE, arena.address, SIZE, 1)
    lines = [arena.memory[at : at + 64] for at in range(SIZE, 2 * SIZE, 64)]
    assert b"\xaa" * 64 not in lines
    assert arena.memory[:SIZE] == before


def test_multiply_adds_are_counted(library: Native) -> None:
    _, flops = library.fma_float32(1000, 1)
    _, twice = library.fma_float32(1000, 2)
    assert 0 < flops == twice / 2


def test_a_machine_without_a_compiler_is_told_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(toolchain, "COMPILERS", ("a-compiler-that-is-not-there",))
    toolchain.compiler.cache_clear()
    with pytest.raises(Refused, match="apt-get install g\\+\\+"):
        native.load(tmp_path)
    toolchain.compiler.cache_clear()
