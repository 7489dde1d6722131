"""A Draft: one problem as an importer understood it, and the files that it becomes here."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from swarm.definition import DEFINITION_FILE, REFERENCE_FILE, Definition
from swarm.errors import BadInput
from swarm.foreign import one_line
from swarm.importers.floors import is_irregular, outputs_alone
from swarm.importers.seed import make_seed, needs_gpu
from swarm.launch import toml_value
from swarm.layout import check_name
from swarm.problem import CPU_WORKLOAD_FILE, SEEDS, SETTINGS_FILE, WORKLOAD_FILE, problem_from_files
from swarm.protocol import Protocol
from swarm.workload import SafetensorsInput, Tolerance, Workload

CPU_BYTES, CPU_WORKLOADS = 8 << 20, 4
"""What a CPU reads and writes in a few milliseconds; the largest of those, and not many, are kept for it."""
NAME_CHARS, SOURCE_CHARS = 100, 300
FAMILY = re.compile(r"[a-z][a-z0-9_-]*")
OP_CLASSES = {
    "matmul": ("gemm", "matmul", "linear", "bmm"),
    "convolution": ("conv",),
    "attention": ("attention", "gqa", "mla", "mha", "dsa"),
    "normalisation": ("norm",),
}
"""op_class -> what an op_type says that is of this class."""
WEAK_FLOOR = (
    "contents may decide the work, so T_SOL only says how long writing the outputs takes; "
    "[sol] in problem.toml can say more"
)


@dataclass(frozen=True, slots=True)
class Draft:
    """One problem of somebody else's."""

    name: str
    source: str
    """Data set and place in it, for problem.toml."""
    definition: Definition
    workloads: Sequence[Workload]
    tolerance: Tolerance
    """What holds where a workload says nothing, in its own project."""
    blobs: dict[str, bytes] = field(default_factory=dict)
    """Tensors that workloads refer to, by file name."""
    remarks: Counter[str] = field(default_factory=Counter)
    """What is to be known about it, and of how many of its workloads or files that is true."""


def slug(text: str) -> str:
    """Return `text` as the name of a problem; BadInput if nothing of it can be one."""
    name = re.sub(r"[^a-z0-9]+", "_", text.lower())[:NAME_CHARS].strip("_")
    return check_name("problem", name)


def render(draft: Draft, licence: str, protocol: Protocol) -> dict[str, bytes]:
    """Return the files of the problem, checked as those of any other; BadInput says what is wrong."""
    definition = draft.definition
    files = {
        DEFINITION_FILE: _definition(definition),
        REFERENCE_FILE: (definition.reference.rstrip("\n") + "\n").encode(),
        WORKLOAD_FILE: _lines(draft.workloads),
        SETTINGS_FILE: _settings(draft, licence).encode(),
        **draft.blobs,
    }
    for_cpu = _for_cpu(draft)
    if for_cpu:
        files[CPU_WORKLOAD_FILE] = _lines(for_cpu)
    try:
        language, seed = make_seed(definition, protocol)
    except BadInput as error:
        draft.remarks[f"no seed, for its reference breaks [rules]: {error.what}"] += 1
    else:
        files |= {f"{SEEDS}{language}/{path}": data for path, data in seed.items()}
    problem_from_files(files, draft.name)
    return files


def _definition(definition: Definition) -> bytes:
    raw = {**definition.model_dump(mode="json"), "reference": ""}
    for group in ("axes", "inputs", "outputs"):
        raw[group] = {name: _said(item) for name, item in raw[group].items()}
    return (json.dumps(_said(raw), indent=2) + "\n").encode()


def _said(item: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is not said; a shape that is null says something."""
    return {key: value for key, value in item.items() if value is not None or key == "shape"}


def _lines(workloads: Sequence[Workload]) -> bytes:
    return "".join(
        f"{json.dumps(w.model_dump(mode='json', exclude_none=True))}\n" for w in workloads
    ).encode()


def _for_cpu(draft: Draft) -> list[Workload]:
    """Return the largest workloads that a CPU can be measured with, in their own order."""
    if needs_gpu(draft.definition.reference):
        return []
    fitting = [(size, w) for w in draft.workloads if 0 < (size := _bytes(draft.definition, w)) <= CPU_BYTES]
    largest = sorted(fitting, key=lambda pair: -pair[0])[:CPU_WORKLOADS]
    chosen = {workload.uuid for _, workload in largest}
    return [workload for workload in draft.workloads if workload.uuid in chosen]


def _bytes(definition: Definition, workload: Workload) -> int:
    axes = definition.resolve(workload)
    return sum(definition.nbytes(name, axes) for name in (*definition.inputs, *definition.outputs))


def _settings(draft: Draft, licence: str) -> str:
    definition = draft.definition
    family = re.sub(r"[^a-z0-9_-]+", "_", (definition.op_type or "").lower()).strip("_-")
    facts: dict[str, object] = {"family": family if FAMILY.fullmatch(family) else "other"}
    op_class = next((c for c, words in OP_CLASSES.items() if any(word in family for word in words)), None)
    if op_class is not None:
        facts["op_class"] = op_class
    facts["source"] = one_line(draft.source, SOURCE_CHARS)
    facts["licence"] = one_line(licence, SOURCE_CHARS)
    tables: dict[str, dict[str, object]] = {"tolerance": draft.tolerance.model_dump(exclude_none=True)}
    if is_irregular(definition):
        facts["irregular"] = True
        tables["sol"] = {"bytes": outputs_alone(definition)}
        draft.remarks[WEAK_FLOOR] += 1
    lines = [f"{key} = {toml_value(value)}" for key, value in facts.items()]
    for title, table in tables.items():
        lines += ["", f"[{title}]", *(f"{key} = {toml_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def file_inputs(workloads: Sequence[Workload]) -> list[tuple[Workload, str, SafetensorsInput]]:
    """Return every input that comes from a file."""
    return [
        (workload, name, item)
        for workload in workloads
        for name, item in workload.inputs.items()
        if isinstance(item, SafetensorsInput)
    ]
