"""What a native candidate is handed: the addresses of its tensors, its scalars, its axes, its own errors."""

from __future__ import annotations

import array
import subprocess
from pathlib import Path

import pytest
import torch

from swarm.judge.cuda.artifacts import content
from swarm.judge.cuda.candidates import NativeCandidate, check_returned
from swarm.judge.cuda.driver import CudaError
from swarm.judge.cuda.wire import Layout

SOURCE = """
#include <stdint.h>
static int error;
void swarm_entry(void* const* arguments, const int64_t* axes, void* stream) {
  const float* x = arguments[0];
  const double scale = *(const double*)arguments[1];
  const int64_t shift = *(const int64_t*)arguments[2];
  float* y = arguments[3];
  for (int64_t i = 0; i < axes[0] * axes[1]; ++i) y[i] = x[i] * scale + shift;
  error = axes[0] == 7 ? 9 : 0;
}
int swarm_error() { return error; }
"""
LAYOUT = Layout(
    names=("x", "scale", "shift", "y"),
    dtypes=("float32", "float32", "int64", "float32"),
    shapes=(("n", "m"), None, None, ("n", "m")),
    outputs=1,
    axes=("n", "m"),
    constants={"k": 5},
)


@pytest.fixture
def candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[NativeCandidate, array.array[float]]:
    """Return a candidate whose arena is memory of this process."""
    (tmp_path / "kernel.c").write_text(SOURCE)
    library = tmp_path / "kernel.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "kernel.c"], check=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    memory = array.array("f", [0.0] * 64)
    head = {"entry": "swarm_entry", "is_empty": False}
    return NativeCandidate(LAYOUT, memory.buffer_info()[0], head, content(library)), memory


def test_it_gets_tensors_scalars_and_axes(candidate: tuple[NativeCandidate, array.array[float]]) -> None:
    made, memory = candidate
    memory[0:6] = array.array("f", range(6))
    call = made.prepare(0, [0, -2.0, 10, 128], {"n": 2, "m": 3, "k": 5})
    made.enqueue(call)
    assert list(memory[32:39]) == [10, 8, 6, 4, 2, 0, 0]


def test_an_error_of_its_own_runtime_is_named(candidate: tuple[NativeCandidate, array.array[float]]) -> None:
    pytest.importorskip("cuda.bindings")
    made, _ = candidate
    with pytest.raises(CudaError, match="cudaErrorInvalidConfiguration"):
        made.enqueue(made.prepare(0, [0, 1.0, 0, 128], {"n": 7, "m": 1, "k": 5}))


def test_an_empty_candidate_writes_nothing() -> None:
    memory = array.array("f", [1.0] * 64)
    made = NativeCandidate(LAYOUT, memory.buffer_info()[0], {"is_empty": True}, {})
    made.enqueue(made.prepare(0, [0, 1.0, 0, 128], {"n": 2, "m": 3, "k": 5}))
    assert memory == array.array("f", [1.0] * 64)


class Lazy(torch.Tensor):
    """A tensor that could still compute when it is looked at."""


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (torch.ones(2, 3).as_subclass(Lazy), "y is returned as a Lazy, not as a torch.Tensor"),
        ([[1.0] * 3] * 2, "y is returned as a list"),
        (torch.ones(2, 3, dtype=torch.float16), "y has dtype torch.float16, not torch.float32"),
        (torch.ones(3, 2).T, r"y is returned with strides \(1, 2\), not contiguous"),
        (torch.ones(2, 3, device="meta"), "y is returned on meta, not on cpu"),
    ],
)
def test_what_is_returned_must_be_there_already(returned: object, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        check_returned(torch, "y", returned, torch.empty(2, 3))


def test_a_plain_tensor_may_be_returned() -> None:
    check_returned(torch, "y", torch.ones(2, 3), torch.empty(2, 3))
