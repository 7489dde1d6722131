"""GPU memory that two processes share, and errors that have names."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from swarm.errors import Refused
from swarm.judge.cuda.cubins import Source, compile_cubin, cubin
from swarm.judge.cuda.driver import (
    Context,
    CudaError,
    Event,
    Packed,
    Stream,
    count_devices,
    facts,
    ordinal_of,
)
from swarm.judge.cuda.memory import DeviceArena
from swarm.judge.wire import send

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[3]
CHILD = """
import socket, sys
from swarm.judge.cuda.driver import Context, Stream
from swarm.judge.cuda.memory import MappedArena
from swarm.judge.wire import receive
peer = socket.socket(fileno=int(sys.argv[1]))
data, fds = receive(peer)
arena = MappedArena(Context(0), fds[0], int(data))
stream = Stream()
stream.write(arena.address + 100, stream.read(arena.address, 5)[::-1])
assert not {"torch", "numpy", "pydantic"} & set(sys.modules), sorted(sys.modules)
peer.sendall(b"done")
"""


def test_a_gpu_says_what_it_is() -> None:
    assert count_devices() >= 1
    found = facts(0)
    assert found.arch >= 80 and found.num_sms > 10 and found.l2_bytes > 1 << 20
    assert found.smem_per_block_max > 48 << 10
    assert ordinal_of(found.uuid) == 0
    with pytest.raises(Refused, match="no GPU"):
        ordinal_of("GPU-0")


@pytest.mark.parametrize("prefix", [[], ["unshare", "-Ur"]], ids=["plain", "user namespace"])
def test_another_process_sees_an_arena_through_its_descriptor(prefix: list[str]) -> None:
    context = Context(0)
    stream = Stream()
    with DeviceArena(context, 5 << 20) as arena:
        assert arena.size >= 5 << 20 and arena.address % 256 == 0
        stream.write(arena.address, b"hello")
        mine, theirs = socket.socketpair()
        with mine, theirs:
            child = subprocess.Popen(
                [*prefix, sys.executable, "-c", CHILD, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
            )
            send(mine, str(arena.size).encode(), [arena.fd])
            assert child.wait(60) == 0
        assert stream.read(arena.address + 100, 5) == b"olleh"


def test_an_arena_that_does_not_fit_is_refused_with_the_numbers() -> None:
    context = Context(0)
    free, _ = context.memory_bytes()
    with pytest.raises(Refused, match="do not fit 85%"):
        DeviceArena(context, free)
    for _ in range(3):  # what is closed is free again
        with DeviceArena(context, free // 2):
            pass


def test_a_packed_launch_and_its_errors(tmp_path: Path) -> None:
    context = Context(0)
    stream = Stream()
    code = 'extern "C" __global__ void add(int *to, int value, double more) { *to += value + (int)more; }'
    module = context.load(compile_cubin(code, (f"--gpu-architecture=sm_{context.facts.arch}",)))
    function = module.function("add")
    assert function.parameters() == [(0, 8), (8, 4), (16, 8)]
    address = context.allocate(16)
    stream.write(address, bytes(16))
    block = address.to_bytes(8, "little") + (5).to_bytes(8, "little") + bytes(6) + b"\xf0\x3f"
    begun, ended = Event(), Event()
    begun.record(stream)
    function.launch((1, 1, 1), (1, 1, 1), Packed(block), stream)
    ended.record(stream)
    assert int.from_bytes(stream.read(address, 4), "little") == 6
    assert 0 < ended.us_since(begun) < 1e6
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_VALUE"):
        function.launch((1, 1, 1), (4096, 1, 1), Packed(block), stream)
    with pytest.raises(CudaError, match="CUDA_ERROR_NOT_FOUND"):
        module.function("subtract")


def test_the_runners_kernels_do_what_their_names_say(tmp_path: Path) -> None:
    context = Context(0)
    stream = Stream()
    module = context.load(cubin(Source.RUNNER, context.facts.arch, tmp_path))
    address = context.allocate(1 << 20)
    grid, block = (context.facts.num_sms, 1, 1), (256, 1, 1)

    def launch(name: str, *words: int) -> None:
        data = b"".join(word.to_bytes(8, "little") for word in words)
        module.function(name).launch(grid, block, Packed(data), stream)

    launch("swarm_poison", address, 1003, 0x1122334455667788)
    assert stream.read(address, 1003) == ((0x1122334455667788).to_bytes(8, "little") * 126)[:1003]
    launch("swarm_flush_write", address, 1 << 20)
    launch("swarm_flush_read", address, 1 << 20)
    launch("swarm_open")
    launch("swarm_close")
    begun, ended = Event(), Event()
    begun.record(stream)
    launch("swarm_spin", 300_000)
    ended.record(stream)
    ended.synchronize()
    assert 300 <= ended.us_since(begun) < 1000
