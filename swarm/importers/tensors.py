"""The tensors that workloads take from safetensors files: found, or made by a rule where there is no file.

The rule, which depends on definition and workload alone, so that importing again makes the same:

- a float tensor is drawn afresh for every call, as if the workload said `random`;
- offsets (`*indptr`, `cu_seqlens*`, `*offsets`) go from 0 to their end in steps as equal as they can be, the
  longer ones first. The end is the axis of the constraint `AXIS == NAME[-1].item()`; without one, it is how
  many `*_indices` there are;
- `*indices` are a shuffle of all pages, again and again if there are fewer pages than indices;
- `*last_page_len` are all a full page;
- any other integers cannot be made up: the problem is left out.
"""

from __future__ import annotations

import math
import os
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from swarm.definition import Definition, DType
from swarm.errors import BadInput
from swarm.foreign import read_linked
from swarm.importers.draft import file_inputs
from swarm.schema import shown
from swarm.tensorfile import write
from swarm.workload import InputDescriptor, RandomInput, SafetensorsInput, Workload

MAX_BYTES = 64 << 20
"""Of one file: it becomes part of the problem's branch."""
ENVIRONMENT = "FLASHINFER_TRACE_DIR"
"""Where SOL-ExecBench looks, too."""
PATH = re.compile(r"(?:[\w.+=@ -]{1,200}/){0,20}[\w.+=@-]{1,180}\.safetensors", re.ASCII)
OFFSETS = re.compile(r"\w*indptr|cu_seq_?lens\w*|\w*offsets")
CONSTRAINT = re.compile(r"\s*(\w+)\s*==\s*(\w+)\s*\[\s*-1\s*\]\s*(?:\.item\(\))?\s*")
INTEGERS = {DType.INT64: 8, DType.INT32: 4}
MADE = "a safetensors file was not found: integers made by the rule in docs/problems.md, floats drawn afresh"


def roots_of(*folders: Path) -> list[Path]:
    """Return where files are looked for: these folders, then the environment's."""
    given = os.environ.get(ENVIRONMENT)
    return [*folders, *([Path(given)] if given else [])]


def gather(
    definition: Definition,
    workloads: Sequence[Workload],
    constraints: Sequence[str],
    roots: Sequence[Path],
    remarks: Counter[str],
) -> tuple[list[Workload], dict[str, bytes]]:
    """Return the workloads and the files they refer to; BadInput if one is neither there nor to be made."""
    wanted = file_inputs(workloads)
    paths = sorted({item.path for _, _, item in wanted})
    files, missing = {}, set()
    for path in paths:
        if not PATH.fullmatch(path):
            raise BadInput(
                f"{shown(path)} is no path of a safetensors file", where="inputs", remedy="correct it"
            )
        data = _found(path, roots)
        if data is None:
            missing.add(path)
        else:
            files[_local(path, paths)] = data
    if not missing:
        return list(workloads), files
    made: dict[str, dict[str, tuple[DType, tuple[int, ...], bytes]]] = {}
    changed: list[Workload] = []
    for workload in workloads:
        inputs: dict[str, InputDescriptor] = {}
        for name, item in workload.inputs.items():
            is_missing = isinstance(item, SafetensorsInput) and item.path in missing
            if is_missing and definition.inputs[name].dtype.is_float:
                inputs[name] = RandomInput(type="random")
                continue
            inputs[name] = item
            if is_missing:
                assert isinstance(item, SafetensorsInput)
                tensor = _made(name, definition, workload, constraints, item.path)
                made.setdefault(_local(item.path, paths), {})[item.tensor_key] = tensor
        if any(
            isinstance(item, SafetensorsInput) and item.path in missing for item in workload.inputs.values()
        ):
            remarks[MADE] += 1
        changed.append(workload.model_copy(update={"inputs": inputs}))
    return changed, files | {path: write(tensors) for path, tensors in made.items()}


def _found(path: str, roots: Sequence[Path]) -> bytes | None:
    """Return the file that `path` means below one of the roots, whole or without its leading folders."""
    for place in _places(path, roots):
        data = read_linked(place, MAX_BYTES + 1)
        if data is not None and len(data) > MAX_BYTES:
            raise BadInput(
                f"more than {MAX_BYTES >> 20} MiB, too much for a problem's branch",
                where=str(place),
                remedy="cut it down to the tensors that are used",
            )
        if data is not None:
            return data
    return None


def _places(path: str, roots: Sequence[Path]) -> Iterator[Path]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    for root in roots:
        for start in range(len(parts)):
            yield root.joinpath(*parts[start:])


def _local(path: str, paths: Sequence[str]) -> str:
    """Return where a file lies in the problem's folder: under its own name, unless another has the same."""
    name = path.rpartition("/")[2]
    is_alone = sum(other.rpartition("/")[2] == name for other in paths) == 1
    return name if is_alone else "/".join(part for part in path.split("/") if part not in ("", "."))


def _made(
    name: str, definition: Definition, workload: Workload, constraints: Sequence[str], path: str
) -> tuple[DType, tuple[int, ...], bytes]:
    """Make the integers of input `name` by the rule."""
    axes = definition.resolve(workload)
    dtype, shape = definition.inputs[name].dtype, definition.shape(name, axes) or ()
    count = math.prod(shape)
    values: list[int] | None = None
    if dtype in INTEGERS and count * INTEGERS[dtype] > MAX_BYTES:
        raise BadInput(
            f"no file {path!r}, and {count} integers for {name!r} are too many to be made up",
            where=f"workload {workload.uuid}",
            remedy=f"give --blobs DIR, or set {ENVIRONMENT}",
        )
    if dtype in INTEGERS and OFFSETS.fullmatch(name) and count > 1:
        end = _end(name, definition, axes, constraints)
        values = None if end is None else _offsets(count - 1, end)
    elif dtype in INTEGERS and name.endswith("indices"):
        pages = _pages(definition, axes)
        values = None if not pages else _indices(count, pages, f"{workload.uuid}/{name}")
    elif dtype in INTEGERS and name.endswith("last_page_len") and "page_size" in axes:
        values = [axes["page_size"]] * count
    if values is None:
        raise BadInput(
            f"no file {path!r}, and no rule makes {name!r} ({dtype}) up",
            where=f"workload {workload.uuid}",
            remedy=f"give --blobs DIR, or set {ENVIRONMENT}",
        )
    data = b"".join(value.to_bytes(INTEGERS[dtype], "little", signed=True) for value in values)
    return dtype, shape, data


def _end(name: str, definition: Definition, axes: dict[str, int], constraints: Sequence[str]) -> int | None:
    for constraint in constraints:
        match = CONSTRAINT.fullmatch(constraint)
        if match and match[2] == name and match[1] in axes:
            return axes[match[1]]
    indices = f"{name.removesuffix('indptr')}indices"
    shape = definition.shape(indices, axes) if indices in definition.inputs else None
    return shape[0] if shape else None


def _offsets(steps: int, end: int) -> list[int]:
    each, rest = divmod(end, steps)
    return [each * step + min(step, rest) for step in range(steps + 1)]


def _pages(definition: Definition, axes: dict[str, int]) -> int:
    """Return how many pages the caches hold: the first dimension of the first of them."""
    for name in definition.inputs:
        if "cache" in name and (shape := definition.shape(name, axes)):
            return shape[0]
    return 0


def _indices(count: int, pages: int, seed: str) -> list[int]:
    order = list(range(min(pages, 1 << 24)))
    random.Random(seed).shuffle(order)
    return [order[number % len(order)] for number in range(count)]
