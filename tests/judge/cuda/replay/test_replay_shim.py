"""Recorded by the real shim, replayed by the real launcher, with a driver between that needs no GPU."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm import sandbox
from swarm.judge.cuda import driver
from swarm.judge.cuda.driver import Context, Stream
from swarm.judge.cuda.launcher import Launcher
from swarm.judge.cuda.replay import artifact_of
from swarm.judge.cuda.replay_tape import TAPE, Tape, Unreplayable, key_of, read
from swarm.languages.cuda import read_kernels
from swarm.languages.cuda_toolkit import all_headers
from swarm.languages.nvrtc import info_to_json
from swarm.languages.steps import Calls, KernelStep, Recorded
from tests.boxes import levels
from tests.judge.cuda.replay import fake
from tests.judge.cuda.replay.fake import BYTES, COUNT, Fake, floats, places

AXES, SCALARS = {"n": COUNT}, {"factor": 2.0}
POISON = 0xFF


Run = Callable[[Tape, list[float]], list[float]]


@pytest.fixture
def launched() -> list[Any]:
    """What was launched by `run`."""
    return []


@pytest.fixture
def run(made: Fake, launched: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
    """Replay a tape as a runner does: from its files, at new addresses, on contents of now."""
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake.bindings(made.folder, launched))
    driver.bindings.cache_clear()

    def replayed(tape: Tape, x: list[float]) -> list[float]:
        context, stream = Context(0), Stream()
        path = artifact_of(tape, tmp_path).path
        again = Tape.from_json((path / TAPE).read_bytes())
        images = {number: (path / f"{number}.cubin").read_bytes() for number in range(len(tape.images))}
        launcher = Launcher(context, stream, again, images, [info_to_json(one) for one in read_kernels(path)])
        calls = launcher.resolve(AXES, SCALARS)
        addresses = {"input:x": context.allocate(BYTES), "output:y": context.allocate(BYTES)}
        addresses |= {name: context.allocate(nbytes) for name, nbytes in calls.scratch.items()}
        stream.write(addresses["input:x"], floats(x))
        for name, nbytes in {"output:y": BYTES, **calls.scratch}.items():
            stream.set_bytes(addresses[name], POISON, nbytes)
        launcher.enqueue(launcher.prepare(calls, addresses))
        return list(struct.unpack(f"<{COUNT}f", stream.read(addresses["output:y"], BYTES)))

    yield replayed
    driver.bindings.cache_clear()


def taped(made: Fake, entry: str, code: bytes = b"// code\n\0") -> Tape:
    tape = Tape()
    tape.add(made.record(entry, code), places(), key_of(AXES, SCALARS))
    return tape


def calls(tape: Tape) -> Calls:
    return tape.resolve(AXES, SCALARS)


NUMBERS = [float(n) for n in range(COUNT)]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("through_scratch", lambda x: 6 * x),
        ("by_dlsym", lambda x: 3 * x),
        ("by_table", lambda x: 3 * x),
        ("by_a_kernel", lambda x: 3 * x),
        ("in_a_struct", lambda x: x + 5),
        ("by_a_map", lambda x: x + 1),
        ("on_a_stream_of_its_own", lambda x: 2 * x),
    ],
)
def test_a_replay_computes_what_the_candidate_computes(
    made: Fake, run: Run, entry: str, expected: Callable[[float], float]
) -> None:
    assert run(taped(made, entry), NUMBERS) == [expected(x) for x in NUMBERS]


def test_all_of_a_call_is_replayed_in_its_order(made: Fake) -> None:
    found = calls(taped(made, "through_scratch"))
    assert [type(step).__name__ for step in found.steps] == [
        "MemsetStep",
        "CopyStep",
        "KernelStep",
        "KernelStep",
    ]
    assert found.scratch == {"scratch:0": 2 * BYTES}
    assert not found.filled, "the runner poisons all of it before every call"


def test_a_launch_is_replayed_in_the_shape_that_it_had(made: Fake, run: Run, launched: list[Any]) -> None:
    run(taped(made, "by_dlsym"), NUMBERS)
    (config,) = launched
    assert (config.gridDimX, config.blockDimX, config.sharedMemBytes) == (8, 128, 49152)
    cluster, overlap = (attribute.value for attribute in config.attrs)
    assert (cluster.clusterDim.x, cluster.clusterDim.y, cluster.clusterDim.z) == (2, 1, 1)
    assert overlap.programmaticStreamSerializationAllowed == 1


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("counts_its_calls", "parameter 3 of scale in step 1 changes with more than its buffers"),
        ("hides_an_address", "parameter 0 of move in step 1 changes with more than its buffers"),
        ("grows", "step 1 launches scale with another shape"),
        ("works_now_and_then", "1 launches, fills and copies after 2|2 launches, fills and copies after 1"),
        ("takes_turns", "step 1 launches another kernel"),
        ("on_two_streams", "works on 2 streams at a time"),
        ("launches_a_graph", "uses cuGraphLaunch, which is not replayed"),
        ("uploads", "uses cuMemcpyHtoDAsync_v2, which is not replayed"),
        ("reads_a_neighbour", "outside of the call's own buffers"),
        ("does_nothing", "0 launches, fills and copies were seen"),
    ],
)
def test_what_cannot_be_replayed_is_said(made: Fake, entry: str, reason: str) -> None:
    with pytest.raises(Unreplayable, match=reason):
        taped(made, entry)


def test_what_an_earlier_call_left_behind_is_not_there_in_a_replay(made: Fake, run: Run) -> None:
    """The recording says nothing of the table, so all that a replay finds in its place is poison."""
    assert run(taped(made, "keeps_a_table"), NUMBERS) != [2 * x for x in NUMBERS]


def container(content: bytes) -> bytes:
    """Return a fatbin with one entry, as the runtime passes it on."""
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


@pytest.mark.parametrize("entry", ["by_table", "by_dlsym"])
def test_code_is_kept_whole_in_every_form(made: Fake, entry: str) -> None:
    """What follows an image in memory is none of it."""
    elf = (made.folder / "candidate.so").read_bytes()  # of all ELF files one that is here
    for code in (elf, container(b"\1\2\0\3"), b"// PTX as text\n\0"):
        tape = taped(made, entry, code + b"what follows")
        assert tape.images == [code]


def test_the_declared_interface_is_that_of_cuda(tmp_path: Path) -> None:
    source = tmp_path / "same.cpp"
    source.write_text(
        """
        #include <cuda.h>
        #include "replay_abi.h"
        #define SAME(ours, theirs) static_assert(ours == theirs, #theirs)
        SAME(sizeof(Config), sizeof(CUlaunchConfig));
        SAME(offsetof(Config, grid), offsetof(CUlaunchConfig, gridDimX));
        SAME(offsetof(Config, block), offsetof(CUlaunchConfig, blockDimX));
        SAME(offsetof(Config, smem), offsetof(CUlaunchConfig, sharedMemBytes));
        SAME(offsetof(Config, stream), offsetof(CUlaunchConfig, hStream));
        SAME(offsetof(Config, attributes), offsetof(CUlaunchConfig, attrs));
        SAME(offsetof(Config, count), offsetof(CUlaunchConfig, numAttrs));
        SAME(sizeof(Attribute), sizeof(CUlaunchAttribute));
        SAME(offsetof(Attribute, value), offsetof(CUlaunchAttribute, value));
        SAME(sizeof(CUtensorMap), 128);
        SAME(INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
        SAME(POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
        SAME(POINTER_RANGE_START, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
        SAME(POINTER_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
        SAME(MEMORY_DEVICE, unsigned(CU_MEMORYTYPE_DEVICE));
        SAME(1, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW);
        SAME(2, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
        SAME(4, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
        SAME(6, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
        SAME(2, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
        """
    )
    includes = [f"-I{path}" for path in (Path(driver.__file__).parent, *all_headers())]
    subprocess.run(["g++", "-std=c++17", "-fsyntax-only", "-w", *includes, str(source)], check=True)


def test_other_libraries_find_what_comes_next_as_ever(made: Fake, tmp_path: Path) -> None:
    """RTLD_NEXT is relative to who asks dlsym, which must not be the shim."""
    source, library = tmp_path / "next.cpp", tmp_path / "next.so"
    source.write_text(
        '#include <dlfcn.h>\nextern "C" int puts(const char *) { return 7; }\n'
        'extern "C" int found() { return dlsym(RTLD_NEXT, "puts") != (void *)puts; }\n'
    )
    subprocess.run(["g++", "-shared", "-fPIC", "-w", str(source), "-o", str(library)], check=True)
    code = f"import ctypes, sys; sys.exit(ctypes.CDLL({str(library)!r}).found())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"LD_PRELOAD": f"{made.shim} {library}", "LD_LIBRARY_PATH": str(made.folder)},
        timeout=60,
    )
    assert done.returncode == 1


def test_a_step_knows_the_parameters_that_the_driver_told(made: Fake) -> None:
    tape = taped(made, "by_a_map")
    (step,) = calls(tape).steps
    assert isinstance(step, KernelStep)
    assert tape.parameters == {(0, "mapped"): ((0, 128), (128, 8), (136, 8))}
    assert [len(arg.maps) for arg in step.args if isinstance(arg, Recorded)] == [1, 0, 0]


@levels
def test_the_shim_is_there_in_a_box_and_in_no_other_program(made: Fake, at: sandbox.Level) -> None:
    """Whatever builds the box starts the program itself with it, and nothing on the way there."""
    with sandbox.spawn(
        made.command("by_dlsym"),
        limits=sandbox.Limits(processes=64, open_files=256),
        cores=sorted(os.sched_getaffinity(0)),
        env=made.environment,
        readable=[made.folder, made.shim, fake.FOLDER, *map(Path, sys.path[1:]), fake.FOLDER.parents[3]],
        at=at,
    ) as process:
        end = process.wait(60)
        assert end is not None and end.succeeded, process.log
        tape = Tape()
        tape.add(read(process.log.encode()), places(), key_of(AXES, SCALARS))
    assert len(calls(tape).steps) == 1
