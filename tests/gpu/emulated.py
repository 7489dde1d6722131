"""Calls a `cuda` solution on the CPU: its own plan, its own kernels, the judge's contents and comparison.

What stands between is `emulator.h`. Kernels with inline PTX that computes cannot be had this way.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from swarm.judge import elements
from swarm.judge.check import Match, compare
from swarm.judge.inputs import Draw, Inputs
from swarm.languages.cuda import macros
from swarm.languages.cuda_header import device_header
from swarm.languages.cuda_toolkit import all_headers
from swarm.languages.plan import Plan
from swarm.languages.planning import make_plan
from swarm.languages.resolve import resolve
from swarm.languages.steps import Calls, Dim, MemsetStep, Pointer, Value
from swarm.problem import Problem
from swarm.protocol import load_protocol
from swarm.solution import load_manifest
from swarm.workload import Workload
from tests.gpu import trees

HERE = Path(__file__).parent
FLAGS = ("-std=c++20", "-O1", "-shared", "-fPIC", "-w", "-fno-gnu-unique")
"""The last: shared memory of a template is each library's own, not that of the first one loaded."""
WAITS = re.compile(r'asm volatile\("griddepcontrol[^;]*;" ::: "memory"\);')
"""What orders launches that overlap; these do not."""
DYNAMIC = re.compile(r"extern __shared__ (\w+) (\w+)\[\];")
POISON = 0xFF
WIDER = {torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.float32: torch.float64}
"""In what the judge has a reference computed, where a problem asks for that."""


@dataclass(frozen=True, slots=True)
class SmallGpu:
    """A device of few multiprocessors, so that blocks that stay have more than one turn."""

    num_sms: int = 3
    smem_per_block_max: int = 232448
    l2_bytes: int = 1 << 20
    arch: int = 90

    def max_active_blocks(self, kernel: str, variant: int, threads: int, smem: int) -> int:
        return 1

    def max_active_clusters(self, kernel: str, variant: int, threads: int, smem: int, cluster: Dim) -> int:
        return 1

    def cooperative_blocks(self, kernel: str, variant: int, threads: int, smem: int) -> int:
        return 3


def matches(problem: Problem, tree: Mapping[str, bytes], folder: Path, seed: str = "seed") -> list[Match]:
    """Return how the outputs of two calls of each workload compare with the reference's."""
    plan = make_plan(load_manifest(tree), problem.definition)
    library = _library(problem, tree, plan, folder)
    namespace: dict[str, Any] = {}
    exec(problem.reference, namespace)
    found: list[Match] = []
    for workload in problem.workloads:
        contents = Inputs(problem.definition, workload, seed, problem.distributions(workload), problem.files)
        for _ in range(2):
            given = _given(problem, workload, contents.draw(), contents, namespace)
            found += _compared(problem, workload, given, plan, library, namespace["run"])
    return found


def _given(
    problem: Problem, workload: Workload, draw: Draw, contents: Inputs, namespace: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a draw, or the problem's own entry point, makes each input: a flat tensor or a scalar."""
    definition = problem.definition
    axes = definition.resolve(workload)
    made: dict[str, Any] = {}
    if workload.is_custom:
        torch.manual_seed(draw.number)
        made = namespace[definition.custom_inputs_entrypoint or ""](axes, torch.device("cpu"))
    given: dict[str, Any] = {}
    for index, (name, spec) in enumerate(definition.inputs.items()):
        if spec.is_scalar:
            given[name] = made[name] if workload.is_custom else draw.scalars[index]
            continue
        shape = elements.stored_shape(definition.shape(name, axes) or (), spec.dtype)
        flat = given[name] = torch.empty(math.prod(shape), dtype=elements.stored_dtype(spec.dtype))
        if workload.is_custom:
            assert tuple(made[name].shape) == shape, name
            flat.copy_(made[name].contiguous().view(flat.dtype).flatten())
        else:
            contents.write(draw, index, flat)
    return given


def _compared(
    problem: Problem,
    workload: Workload,
    given: Mapping[str, Any],
    plan: Plan,
    library: ctypes.CDLL,
    reference: Callable[..., Any],
) -> list[Match]:
    definition = problem.definition
    axes = definition.resolve(workload)
    inputs: list[object] = []
    buffers: dict[str, torch.Tensor] = {}
    scalars: dict[str, int | float | bool] = {}
    for name, spec in definition.inputs.items():
        value = given[name]
        if spec.is_scalar:
            scalars[name] = value
        else:
            buffers[f"input:{name}"] = value
            shape = elements.stored_shape(definition.shape(name, axes) or (), spec.dtype)
            value = value.view(elements.torch_dtype(spec.dtype)).view(shape)
            if problem.settings.reference_precision == "higher":
                value = value.to(WIDER.get(value.dtype, value.dtype))
        inputs.append(value)
    for name in definition.outputs:
        buffers[f"output:{name}"] = torch.full((definition.nbytes(name, axes),), POISON, dtype=torch.uint8)
    calls = resolve(plan, axes, scalars, SmallGpu())
    for name, nbytes in calls.scratch.items():
        buffers[name] = torch.full((nbytes,), POISON, dtype=torch.uint8)
    _run(calls, plan, library, buffers)

    expected = reference(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    limits = problem.limits(workload, load_protocol(trees.coordination(), "COORDINATION.md").tests)
    found = []
    for (name, spec), wanted in zip(definition.outputs.items(), expected, strict=True):
        shape = definition.shape(name, axes) or ()
        assert tuple(wanted.shape) == elements.stored_shape(shape, spec.dtype), name
        got = buffers[f"output:{name}"].view(elements.stored_dtype(spec.dtype))
        flat = elements.comparable(wanted.contiguous().flatten(), spec.dtype)
        found.append(compare(name, got, flat, spec.dtype, shape, limits))
    return found


def _run(calls: Calls, plan: Plan, library: ctypes.CDLL, buffers: Mapping[str, torch.Tensor]) -> None:
    for step in calls.steps:
        if isinstance(step, MemsetStep):
            value = step.value.to_bytes(step.width, "little") * (step.nbytes // step.width)
            ctypes.memmove(buffers[step.buffer].data_ptr() + step.offset, value, step.nbytes)
            continue
        held = []
        for argument in step.args:
            assert isinstance(argument, Pointer | Value), "no tensor maps here"
            data = (
                buffers[argument.buffer].data_ptr().to_bytes(8, "little")
                if isinstance(argument, Pointer)
                else argument.data
            )
            held.append(ctypes.create_string_buffer(data, max(8, len(data))))
        addresses = (ctypes.c_void_p * max(1, len(held)))(*map(ctypes.addressof, held))
        number = _names(plan).index((step.variant, step.kernel))
        getattr(library, f"launch_{number}")(
            (ctypes.c_uint * 3)(*step.grid),
            (ctypes.c_uint * 3)(*step.block),
            ctypes.c_size_t(step.smem),
            addresses,
        )


def _names(plan: Plan) -> list[tuple[int, str]]:
    return [(variant, kernel) for variant in range(len(plan.variants)) for kernel in plan.kernels(variant)]


@cache
def _compiled_header() -> Path:
    """Compile emulator.h and CUDA's headers with it, which takes longer than most kernels, once for all."""
    folder = Path(tempfile.mkdtemp(prefix="emulator-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    includes = [f"-I{path}" for path in all_headers()]
    command = ["g++", *FLAGS, *includes, "-x", "c++-header", str(HERE / "emulator.h")]
    subprocess.run([*command, "-o", str(folder / "emulator.h.gch")], check=True)
    return folder


def _library(problem: Problem, tree: Mapping[str, bytes], plan: Plan, folder: Path) -> ctypes.CDLL:
    """Compile the kernels for the CPU; one build variant is all that it can be."""
    variants = {variant for variant, _ in _names(plan)}
    assert len(variants) == 1, "one variant at a time"
    text = ['#include "emulator.h"', ""]
    for name in load_manifest(tree).sources:
        if name.endswith(".cu"):
            code = WAITS.sub("", tree[name].decode())
            text.append(DYNAMIC.sub(r"\1 *\2 = reinterpret_cast<\1 *>(emulator::dynamic.data());", code))
    for number, (_, kernel) in enumerate(_names(plan)):
        text.append(
            f'extern "C" void launch_{number}(const unsigned *grid, const unsigned *block, size_t smem, '
            f"const unsigned char *const *arguments) {{\n"
            f"  emulator::launch(&{kernel}, grid, block, smem, arguments);\n}}"
        )
    (folder / "problem.h").write_text(device_header(problem.definition))
    (folder / "kernels.cpp").write_text("\n".join(text))
    includes = [f"-I{path}" for path in (folder, _compiled_header(), HERE, *all_headers())]
    command = ["g++", *FLAGS, *includes, *macros(plan.variants[variants.pop()])]
    subprocess.run([*command, "kernels.cpp", "-o", "kernels.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernels.so"))
