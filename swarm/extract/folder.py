"""Make a problem's folder of what was found in a model."""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swarm.definition import DEFINITION_FILE, REFERENCE_FILE
from swarm.device import Device
from swarm.durable import write_atomic
from swarm.errors import Refused
from swarm.extract.found import Case, Found
from swarm.problem import CPU_WORKLOAD_FILE, SETTINGS_FILE, WORKLOAD_FILE, Problem, problem_from_files

NAMESPACE = uuid.UUID("6f1d6f2e-9f0a-4d55-8c1b-0e5f6a3c7d21")
"""Of the uuids of workloads, so that the same model gives the same ones."""
FAMILIES = {"normalisation": "normalisation", "attention": "attention", "convolution": "convolution"}
NAME_CHARS = 60
SEED = "seed/pytorch/"
SEED_SETTINGS = b'language = "pytorch"\nsources = ["kernel.py"]\nentry = "kernel.py::run"\n'


def names(prefix: str, found: Sequence[Found]) -> list[str]:
    """Return a name for each problem; equal ones are numbered by where they are in the model."""
    wanted = []
    for one in found:
        suffix = "_backward" if one.direction == "backward" else ""
        text = re.sub(r"[^a-z0-9]+", "_", f"{prefix}_{one.label}".lower()).strip("_")
        wanted.append(text[: NAME_CHARS - len(suffix)].strip("_") + suffix)
    order = sorted(range(len(found)), key=lambda i: (found[i].path, found[i].reference))
    seen: Counter[str] = Counter()
    chosen = {}
    for i in order:
        seen[wanted[i]] += 1
        number = seen[wanted[i]]
        chosen[i] = wanted[i] if number == 1 else f"{wanted[i]}_{number}"
    return [chosen[i] for i in range(len(found))]


def make(name: str, found: Found, model: str, device: Device) -> Problem:
    """Return the problem; `model` says where it is from. BadInput if what was found does not fit."""
    axes, shapes = _axes(found)
    definition = {
        "name": name,
        "op_type": found.op_class,
        "description": _description(found, model),
        "axes": axes,
        "inputs": {t.name: _spec(shape, t.dtype) for t, shape in zip(found.inputs, shapes, strict=False)},
        "outputs": {
            t.name: _spec(shape, t.dtype)
            for t, shape in zip(found.outputs, shapes[len(found.inputs) :], strict=True)
        },
    }
    workloads = "".join(_workload(name, found, case, axes) for case in found.cases).encode()
    files = {
        DEFINITION_FILE: (json.dumps(definition, indent=2) + "\n").encode(),
        REFERENCE_FILE: found.reference.encode(),
        SETTINGS_FILE: _settings(found, model).encode(),
        WORKLOAD_FILE: workloads,
        f"{SEED}solution.toml": SEED_SETTINGS,
        f"{SEED}kernel.py": _seed(found).encode(),
    }
    if device.kind == "cpu":
        files[CPU_WORKLOAD_FILE] = workloads
    return problem_from_files(files, name)


def write(folder: Path, problem: Problem) -> bool:
    """Write the folder and say whether that changed anything; Refused if another problem is there."""
    files = dict(problem.files)
    for language, seed in problem.seeds.items():
        files |= {f"seed/{language}/{path}": data for path, data in seed.items()}
    if folder.exists():
        there = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        if there == files:
            return False
        raise Refused(
            "another problem of this name is there",
            where=str(folder),
            remedy="give another --name, or delete it",
        )
    for path in sorted(
        files, key=lambda path: path == DEFINITION_FILE
    ):  # the file that makes it a problem last
        write_atomic(folder / path, files[path])
    return True


def _axes(found: Found) -> tuple[dict[str, Any], list[list[str]]]:
    """Return an axis for each dimension that differs between workloads, and all shapes in terms of them."""
    tensors = [tensor.name for tensor in (*found.inputs, *found.outputs)]
    columns: dict[tuple[int, ...], str] = {}
    axes: dict[str, Any] = {}
    shapes = []
    for i, tensor in enumerate(tensors):
        shape = []
        for dim in range(len(found.cases[0].shapes[i])):
            sizes = tuple(case.shapes[i][dim] for case in found.cases)
            if len(set(sizes)) == 1:
                shape.append(str(sizes[0]))
                continue
            if sizes not in columns:
                columns[sizes] = f"{tensor}_dim_{dim}"
                axes[columns[sizes]] = {"type": "var", "description": f"size of dimension {dim} of {tensor}"}
            shape.append(columns[sizes])
        shapes.append(shape)
    return axes, shapes


def _sizes(found: Found, case: Case, axes: dict[str, Any]) -> dict[str, int]:
    sizes = {}
    for i, tensor in enumerate((*found.inputs, *found.outputs)):
        for dim, size in enumerate(case.shapes[i]):
            if f"{tensor.name}_dim_{dim}" in axes:
                sizes[f"{tensor.name}_dim_{dim}"] = size
    return sizes


def _spec(shape: list[str], dtype: str) -> dict[str, Any]:
    return {"shape": shape, "dtype": dtype}


def _workload(name: str, found: Found, case: Case, axes: dict[str, Any]) -> str:
    sizes = _sizes(found, case, axes)
    line: dict[str, Any] = {
        "uuid": str(uuid.uuid5(NAMESPACE, f"{name} {case.shapes}")),
        "axes": sizes,
        "inputs": {tensor.name: {"type": "random"} for tensor in found.inputs},
    }
    if (case.atol, case.rtol) != (found.cases[0].atol, found.cases[0].rtol):
        line["tolerance"] = {"max_atol": case.atol, "max_rtol": case.rtol}
    return json.dumps(line) + "\n"


def _settings(found: Found, model: str) -> str:
    first = found.cases[0]
    lines = [
        f'family = "{FAMILIES.get(found.op_class, found.op_class)}"',
        f"op_class = {json.dumps(found.op_class)}",
        f"source = {json.dumps(f'{model}: {_places(found)}')}",
    ]
    if found.is_irregular:
        lines.append("irregular = true")
    if found.is_wider:
        lines.append('reference_precision = "higher"')
    lines += ["", "[tolerance]", f"max_atol = {first.atol!r}", f"max_rtol = {first.rtol!r}"]
    lines += [f"required_matched_ratio = {found.ratio!r}", "", "[inputs]  # like those in the model"]
    lines += [f"{tensor.name} = {json.dumps(tensor.drawn)}" for tensor in found.inputs]
    given = {"flops": None if found.is_counted else first.flops, "bytes": found.bytes}
    if any(number is not None for number in given.values()):
        lines += ["", "[sol]"]
        lines += [f'{field} = "{number}"' for field, number in given.items() if number is not None]
    return "\n".join(lines) + "\n"


def _description(found: Found, model: str) -> str:
    what = f"{found.module or 'a part'} of {model}"
    return f"The gradients of {what}." if found.direction == "backward" else f"{what[0].upper()}{what[1:]}."


def _places(found: Found) -> str:
    places = [place or "the model itself" for case in found.cases for place in case.places]
    count = sum(case.count for case in found.cases)
    said = ", ".join(dict.fromkeys(places))
    return f"{said} ({count} times)" if count > 1 else said


def _seed(found: Found) -> str:
    """Return the reference as a solution: the same text, and `run` fills the outputs."""
    given = [tensor.name for tensor in found.inputs]
    made = [tensor.name for tensor in found.outputs]
    text = re.sub(r"^def run\(", "def compute(", found.reference, flags=re.MULTILINE)
    call = f"compute({', '.join(given)})"
    body = [f"{made[0]}.copy_({call})"]
    if len(made) > 1:
        body = [f"for into, result in zip(({', '.join(made)}), {call}):", "    into.copy_(result)"]
    elif found.direction == "backward":
        body = [f"(result,) = {call}", f"{made[0]}.copy_(result)"]
    lines = "\n".join(f"    {line}" for line in body)
    return (
        f'"""The reference, as a solution."""\n\n{text}\n\ndef run({", ".join([*given, *made])}):\n{lines}\n'
    )
