"""Tensors from files are found where SOL-ExecBench looks, and made by the stated rule without a file."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import pytest

from swarm.definition import DType
from swarm.importers.tensors import MADE
from swarm.tensorfile import tensor_bytes, write
from tests.importers.conftest import Importer, write_problem

REFERENCE = "def run(q, cache, qo_indptr, kv_indptr, kv_indices, kv_last_page_len):\n    return q + 1\n"
PATH = "data/flashinfer-trace/blob/paged/one.safetensors"


def tensor(dtype: str, *shape: str) -> dict[str, Any]:
    return {"shape": list(shape), "dtype": dtype}


DEFINITION = {
    "name": "paged",
    "axes": {
        name: {"type": "var"}
        for name in ("total_q", "num_pages", "len_indptr", "num_kv_indices", "batch_size")
    }
    | {"page_size": {"type": "const", "value": 16}},
    "constraints": ["total_q == qo_indptr[-1].item()"],
    "inputs": {
        "q": tensor("float32", "total_q"),
        "cache": tensor("float32", "num_pages", "page_size"),
        "qo_indptr": tensor("int32", "len_indptr"),
        "kv_indptr": tensor("int32", "len_indptr"),
        "kv_indices": tensor("int64", "num_kv_indices"),
        "kv_last_page_len": tensor("int32", "batch_size"),
    },
    "outputs": {"y": tensor("float32", "total_q")},
    "reference": REFERENCE,
}
AXES = {"total_q": 11, "num_pages": 5, "len_indptr": 4, "num_kv_indices": 7, "batch_size": 3}


def workload(uuid: str = "w", path: str = PATH) -> dict[str, Any]:
    inputs = {
        name: {"type": "safetensors", "path": path, "tensor_key": name} for name in DEFINITION["inputs"]
    }
    return {"uuid": uuid, "axes": AXES, "inputs": inputs}


def found_file() -> bytes:
    """Return a file with all the tensors, none of which the rule would make."""
    shapes = {"q": (11,), "cache": (5, 16), "qo_indptr": (4,), "kv_indptr": (4,), "kv_indices": (7,)}
    tensors = {}
    for name, shape in {**shapes, "kv_last_page_len": (3,)}.items():
        dtype = DType(DEFINITION["inputs"][name]["dtype"])
        size = dtype.bits // 8
        for dim in shape:
            size *= dim
        tensors[name] = (dtype, shape, b"\1" * size)
    return write(tensors)


def integers(into: Importer, name: str) -> list[int]:
    problem = into.problem("paged")
    [one] = problem.workloads
    item = one.inputs[name]
    dtype = problem.definition.inputs[name].dtype
    shape = problem.definition.shape(name, problem.definition.resolve(one)) or ()
    data = tensor_bytes(problem.files, item.path, item.tensor_key, dtype, shape)
    return list(array("i" if dtype is DType.INT32 else "q", data))


def test_a_file_that_is_missing_is_made_by_the_rule(into: Importer, tmp_path: Path) -> None:
    write_problem(tmp_path / "paged", DEFINITION, [workload()])
    said = into(tmp_path / "paged")
    assert said.outcomes == {"paged": "new"}
    assert said.remarks[MADE] == (1, 1)
    assert integers(into, "qo_indptr") == [0, 4, 8, 11], (
        "the constraint's axis in equal steps, longer ones first"
    )
    assert integers(into, "kv_indptr") == [0, 3, 5, 7], "as many as there are indices"
    indices = integers(into, "kv_indices")
    assert sorted(indices[:5]) == [0, 1, 2, 3, 4], "all pages, shuffled"
    assert indices[5:] == indices[:2], "and again"
    assert integers(into, "kv_last_page_len") == [16, 16, 16]
    assert {into.problem("paged").workloads[0].inputs[name].type for name in ("q", "cache")} == {"random"}
    assert into(tmp_path / "paged").outcomes == {"paged": "unchanged"}


@pytest.mark.parametrize(
    "place", ["blob/paged/one.safetensors", "one.safetensors", PATH], ids=["shortened", "bare", "whole"]
)
@pytest.mark.parametrize("root", ["beside", "above", "--blobs", "FLASHINFER_TRACE_DIR"])
def test_a_file_is_found(
    place: str, root: str, into: Importer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "data"
    write_problem(source / "L1/paged", DEFINITION, [workload()])
    folder = {"beside": source / "L1/paged", "above": source}.get(root, tmp_path / "elsewhere")
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    (folder / place).write_bytes(found_file())
    if root == "FLASHINFER_TRACE_DIR":
        monkeypatch.setenv(root, str(folder))
    said = into(source, *([root, str(folder)] if root == "--blobs" else []))
    assert said.outcomes == {"paged": "new"}
    assert MADE not in said.remarks
    assert into.content()["paged/one.safetensors"] == found_file()


def test_files_of_one_name_in_two_folders_stay_two(into: Importer, tmp_path: Path) -> None:
    source = tmp_path / "paged"
    write_problem(
        source, DEFINITION, [workload("a", "x/one.safetensors"), workload("b", "y/one.safetensors")]
    )
    for folder in ("x", "y"):
        (source / folder).mkdir()
        (source / folder / "one.safetensors").write_bytes(found_file() + folder.encode())
    assert into(source).outcomes == {"paged": "new"}
    kept = {name for name in into.content() if name.endswith(".safetensors")}
    assert kept == {"paged/x/one.safetensors", "paged/y/one.safetensors"}


def test_a_file_that_does_not_fit_is_said(into: Importer, tmp_path: Path) -> None:
    source = tmp_path / "paged"
    write_problem(source, DEFINITION, [workload() | {"axes": AXES | {"total_q": 12}}])
    (source / "one.safetensors").write_bytes(found_file())
    assert into(source).left_out == {
        "paged": "paged: workload w: inputs.q: one.safetensors: tensor 'q' is of shape [11], not [12]; "
        "correct the workload"
    }


def test_a_file_that_is_none_of_its_kind_is_said(into: Importer, tmp_path: Path) -> None:
    source = tmp_path / "paged"
    write_problem(source, DEFINITION, [workload()])
    (source / "one.safetensors").write_bytes(json.dumps({"a": 1}).encode())
    [line] = into(source).left_out.values()
    assert line == "paged: workload w: inputs.q: one.safetensors: not a safetensors file; write it again"
