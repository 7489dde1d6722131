"""Where the judge's kernels run in these tests: on the CPU everywhere, and on a GPU where there is one."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from swarm.judge.cuda.driver import Context, Stream
from swarm.judge.cuda.kernels import Kernels
from swarm.judge.cuda.memory import DeviceArena
from tests.judge.cuda import emulated


@dataclass(frozen=True)
class Bench:
    """A device with the judge's kernels on it."""

    context: Context
    kernels: Kernels
    stream: Stream
    arenas: list[DeviceArena] = field(default_factory=list)

    def arena(self, nbytes: int) -> DeviceArena:
        """Return an arena that is closed with the test."""
        self.arenas.append(DeviceArena(self.context, nbytes))
        return self.arenas[-1]

    def read(self, address: int, nbytes: int) -> bytes:
        return self.stream.read(address, nbytes)

    def write(self, address: int, data: bytes) -> None:
        self.stream.write(address, data)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels, compiled for the CPU."""
    return emulated.build(tmp_path_factory.mktemp("emulated"))


@pytest.fixture(params=["emulated", pytest.param("gpu", marks=pytest.mark.gpu)])
def bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    is_emulated = request.param == "emulated"
    cache = tmp_path_factory.getbasetemp() / "cubins"
    if is_emulated:
        emulated.install(monkeypatch, request.getfixturevalue("library"))
    context = Context(0)
    made = Bench(context, Kernels(context, cache), Stream())
    yield made
    for arena in made.arenas:
        arena.close()
    if is_emulated:
        emulated.uninstall()
