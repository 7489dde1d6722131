"""What the guides show is what the programs take."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from swarm.definition import Definition, parse_definition
from swarm.device import Device
from swarm.languages.cuda import Cuda
from swarm.languages.planning import make_plan
from swarm.languages.protocol import Artifact, CompileLimits
from swarm.languages.resolve import resolve
from swarm.launch import OCCUPANCY, VALUE_TYPES, Launch, Memset, Scratch, TensorMap
from swarm.problem import problem_from_files
from swarm.protocol import load_protocol
from swarm.solution import load_manifest, validate_tree, with_params
from tests.languages.plans import Card

ROOT = Path(__file__).parent.parent
PROTOCOL = load_protocol((ROOT / "COORDINATION.md").read_text())
GUIDE = (ROOT / "guides" / "cuda.md").read_text()
MANIFESTS = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
SOURCES = re.findall(r"```cuda\n(.*?)```", GUIDE, re.DOTALL)
VAR = {"type": "var"}


def tensor(dtype: str, *shape: str) -> dict[str, object]:
    return {"shape": shape, "dtype": dtype}


PROBLEMS: list[dict[str, Any]] = [
    {
        "axes": {"rows": VAR, "hidden": {"type": "const", "value": 4096}},
        "inputs": {
            "x": tensor("bfloat16", "rows", "hidden"),
            "weight": tensor("bfloat16", "hidden"),
            "eps": {"shape": None, "dtype": "float32"},
        },
        "outputs": {"y": tensor("bfloat16", "rows", "hidden")},
        "reference": "def run(x, weight, eps):\n    return x\n",
    },
    {
        "axes": {"rows": VAR, "cols": VAR},
        "inputs": {"x": tensor("float32", "rows", "cols")},
        "outputs": {"y": tensor("float32", "rows")},
        "reference": "def run(x):\n    return x\n",
    },
    {
        "axes": {"rows": VAR, "cols": VAR},
        "inputs": {"x": tensor("bfloat16", "rows", "cols")},
        "outputs": {"y": tensor("bfloat16", "cols", "rows")},
        "reference": "def run(x):\n    return x\n",
    },
]
"""What the examples are for, in their order."""


def tree(number: int) -> dict[str, bytes]:
    return {"solution.toml": MANIFESTS[number].encode(), "kernel.cu": SOURCES[number].encode()}


def problem(number: int) -> Definition:
    content = {"name": f"example-{number + 1}", **PROBLEMS[number]}
    return parse_definition(json.dumps(content).encode(), "definition.json")


def test_every_example_has_a_manifest_a_source_and_a_problem() -> None:
    assert len(MANIFESTS) == len(SOURCES) == len(PROBLEMS) == GUIDE.count("## Example ")


@pytest.mark.parametrize("number", range(len(MANIFESTS)))
@pytest.mark.parametrize(("rows", "cols"), [(1, 8), (1000, 1024), (7, 100_000)])
def test_a_manifest_of_the_guide_makes_a_plan_that_keeps_to_the_protocol(
    number: int, rows: int, cols: int
) -> None:
    files = tree(number)
    validate_tree(files, PROTOCOL)
    manifest = load_manifest(files)
    plan = make_plan(manifest, problem(number))
    rows = rows if number < 2 else rows + -rows % 8
    calls = resolve(plan, {"rows": rows, "cols": cols}, {"eps": 1e-5}, Card())
    assert calls.steps
    for name, values in manifest.tune.items():
        assert [load_manifest(with_params(files, {name: value})).params[name] for value in values] == [
            *values
        ]


def test_the_guide_names_every_key_type_and_fact() -> None:
    keys = [
        field.alias or name
        for table in (Launch, Memset, Scratch, TensorMap)
        for name, field in table.model_fields.items()
    ]
    missing = [key for key in keys if not re.search(rf"`{key}`|`{key} = ", GUIDE)]
    missing += [kind for kind in VALUE_TYPES if not re.search(rf"\b{kind}\b", GUIDE)]
    missing += [name for name in OCCUPANCY if f"`{name}(kernel)`" not in GUIDE]
    assert missing == []


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("number", range(len(MANIFESTS)))
def test_an_example_of_the_guide_compiles(tmp_path: Path, number: int, arch: str) -> None:
    content = {"name": "example", **PROBLEMS[number]}
    inputs = {name: {"type": "random"} for name in content["inputs"]}
    if number == 0:
        inputs["eps"] = {"type": "scalar", "value": 1e-5}  # type: ignore[dict-item]
    sizes = {name: 128 for name, axis in content["axes"].items() if axis == VAR}
    files = {
        "definition.json": content,
        "workload.jsonl": {"uuid": "one", "axes": sizes, "inputs": inputs},
    }
    made = Cuda().compile(
        tree(number),
        load_manifest(tree(number)),
        problem_from_files({name: json.dumps(item).encode() for name, item in files.items()}, "example"),
        Device("cuda", "absent", "GPU-absent", (0,), arch, 80 << 30, 132),
        tmp_path,
        CompileLimits(timeout_s=60, memory_bytes=8 << 30),
    )
    assert isinstance(made, Artifact), made.reason
    assert {info.spill_store_bytes for info in made.kernels} == {0}
