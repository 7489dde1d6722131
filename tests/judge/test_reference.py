"""A reference's process when it is timed, moved and killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import psutil
import pytest
import torch

from swarm.definition import DType
from swarm.device import other_cores
from swarm.judge.arena import Arena
from swarm.judge.reference import InvalidReference, Reference, References
from swarm.judge.slots import Buffer, Shape
from swarm.problem import problem_from_files
from tests.judge.test_judge import DEVICE, files

SHAPE = Shape("x", DType.FLOAT32, (7, 256))
X, W, Y = Buffer(SHAPE, 0), Buffer(Shape("w", DType.FLOAT32, (256,)), 8192), Buffer(SHAPE, 16384)
DEFINITION = problem_from_files(files(), "scale").definition
FAULTS = """
import resource, torch
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def run(x, w, scale):
    before = faults()
    torch.ones(10 << 20)
    return x * 0 + (faults() - before)
"""
CORES = """
import os, threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
def run(x, w, scale):
    cores = {core for thread in os.listdir("/proc/self/task") for core in os.sched_getaffinity(int(thread))}
    return x * 0 + (min(cores) if len(cores) == 1 else -1)
"""

SHORTENED = "import torch\ndef run(x, w, scale):\n    return x * 0 + torch.backends.cudnn.allow_tf32\n"

SOURCE = """
import inspect
def helper(x):
    return x * 0 + 3
LENGTH = len(inspect.getsourcelines(helper)[0])
def run(x, w, scale):
    return x * 0 + LENGTH
"""


@contextmanager
def probing(references: References, source: str) -> Iterator[tuple[Reference, torch.Tensor]]:
    """Return a reference that has `source` as `probe`, and where its output goes."""
    with Arena(1 << 16) as arena:
        reference = references.get(source, "scale", DEFINITION, is_wider=False)
        reference.load("probe", source)
        reference.map("arena", arena)
        yield reference, torch.frombuffer(arena.memory, dtype=torch.float32, count=7 * 256, offset=Y.offset)


@pytest.fixture(scope="module")
def references() -> Iterator[References]:
    with References(DEVICE) as made:
        yield made


def test_a_baseline_that_is_timed_finds_the_memory_it_has_freed(references: References) -> None:
    with probing(references, FAULTS) as (reference, output):
        faults = []
        for _ in range(40):
            [taken_ns] = reference.time("probe", "arena", [((X, W, 1.5), (Y,))])
            assert taken_ns > 0
            faults.append(float(output.max()))
        assert median(faults) < 10  # the first ones leave gaps in which the next do not fit


def test_a_reference_can_read_its_own_source_as_triton_does(references: References) -> None:
    with probing(references, SOURCE) as (reference, output):
        reference.expect("arena", (X, W, 1.5), (Y,), "probe")
        assert set(output.tolist()) == {2.0}


def test_a_reference_moves_to_other_cores_with_all_its_threads(references: References) -> None:
    [core, *_] = sorted(other_cores())
    with probing(references, CORES) as (reference, output):
        reference.pin([core])
        reference.expect("arena", (X, W, 1.5), (Y,), "probe")
        assert output.unique().tolist() == [core]


def test_a_convolution_in_float32_is_one_on_a_gpu_too(references: References) -> None:
    assert torch.backends.cudnn.allow_tf32, "torch's default, which a reference's process changes"
    with probing(references, SHORTENED) as (reference, answer):
        reference.time("probe", "arena", [([X, W, 1.0], [Y])])
        assert answer[0] == 0


def test_when_all_references_die_nobodys_problem_is_to_blame_and_the_next_one_starts(
    references: References,
) -> None:
    with probing(references, FAULTS) as (reference, _):
        kill_all()
        with pytest.raises(InvalidReference, match="died") as caught:
            reference.time("probe", "arena", [((X, W, 1.5), (Y,))])
        with pytest.raises(RuntimeError, match="all references"):
            references.drop(FAULTS, caught.value)
    with probing(references, FAULTS) as (reference, _):
        assert reference.time("probe", "arena", [((X, W, 1.5), (Y,))])
    kill_all()
    with pytest.raises(RuntimeError, match="all references"):
        references.get("another", "scale", DEFINITION, is_wider=False)
    assert references.get("another", "scale", DEFINITION, is_wider=False)


def kill_all() -> None:
    found = [
        process
        for process in psutil.Process().children(recursive=True)
        if "swarm.judge.reference_main" in process.cmdline()
    ]
    parent = next(process for process in found if process.parent() not in found)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait(10)
