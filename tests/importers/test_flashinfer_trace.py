"""FlashInfer-Trace's folders become problems; what others made of them is left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.importers.conftest import Importer
from tests.importers.test_tensors import found_file

RMSNORM = """import torch

@torch.no_grad()
def run(hidden_states, weight):
    x = hidden_states.to(torch.float32)
    return ((x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)) * weight).to(hidden_states.dtype)
"""
DEFINITION: dict[str, Any] = {
    "name": "rmsnorm_h256",
    "op_type": "rmsnorm",
    "tags": ["status:verified", "model:none"],
    "axes": {"batch_size": {"type": "var"}, "hidden_size": {"type": "const", "value": 256}},
    "inputs": {
        "hidden_states": {"shape": ["batch_size", "hidden_size"], "dtype": "bfloat16"},
        "weight": {"shape": ["hidden_size"], "dtype": "bfloat16"},
    },
    "outputs": {"output": {"shape": ["batch_size", "hidden_size"], "dtype": "bfloat16"}},
    "reference": RMSNORM,
}


def trace(name: str, batch_size: int) -> dict[str, Any]:
    inputs = {key: {"type": "random"} for key in DEFINITION["inputs"]}
    workload = {"uuid": f"w{batch_size}", "axes": {"batch_size": batch_size}, "inputs": inputs}
    return {"definition": name, "workload": workload, "solution": None, "evaluation": None}


def write_set(folder: Path, definition: dict[str, Any], traces: list[dict[str, Any]]) -> None:
    name, op_type = definition["name"], definition["op_type"]
    for kind, text in (
        (f"definitions/{op_type}/{name}.json", json.dumps(definition)),
        (f"workloads/{op_type}/{name}.jsonl", "".join(f"{json.dumps(one)}\n" for one in traces)),
    ):
        (folder / kind).parent.mkdir(parents=True, exist_ok=True)
        (folder / kind).write_text(text)


def test_a_definition_and_its_workloads_become_a_problem(into: Importer, tmp_path: Path) -> None:
    write_set(tmp_path / "trace", DEFINITION, [trace("rmsnorm_h256", size) for size in (7, 900)])
    for folder in ("solutions/somebody", "traces/somebody"):
        (tmp_path / "trace" / folder).mkdir(parents=True)
    said = into(tmp_path / "trace")
    assert said.code == 0, said.error
    assert (said.out["format"], said.outcomes) == ("FlashInfer-Trace", {"rmsnorm_h256": "new"})
    assert said.remarks == {"tags is not kept: it has no meaning here": (1, 1)}
    problem = into.problem("rmsnorm_h256")
    assert [workload.axes["batch_size"] for workload in problem.workloads] == [7, 900]
    assert (problem.settings.family, problem.settings.op_class) == ("rmsnorm", "normalisation")
    assert problem.settings.source == "FlashInfer-Trace rmsnorm/rmsnorm_h256"
    assert problem.settings.tolerance.required_matched_ratio == 1.0


def test_solutions_and_traces_are_said_to_be_left_alone(into: Importer, tmp_path: Path) -> None:
    write_set(tmp_path / "trace", DEFINITION, [trace("rmsnorm_h256", 7)])
    (tmp_path / "trace/solutions").mkdir()
    assert "solutions not imported: `swarm import-solution` takes one" in into.text(tmp_path / "trace")


def test_what_is_wrong_is_said_and_stops_no_other(into: Importer, tmp_path: Path) -> None:
    source = tmp_path / "trace"
    write_set(source, DEFINITION, [trace("rmsnorm_h256", 7)])
    write_set(source, DEFINITION | {"name": "mixed"}, [trace("mixed", 1), trace("other", 2)])
    write_set(source, DEFINITION | {"name": "bare"}, [trace("bare", 1)["workload"]])
    write_set(source, DEFINITION | {"name": "absent"}, [])
    (source / "workloads/rmsnorm/absent.jsonl").unlink()
    said = into(source)
    assert said.outcomes == {"rmsnorm_h256": "new"}
    assert said.left_out == {
        "definitions/rmsnorm/mixed.json": "workloads/rmsnorm/mixed.jsonl:2: definition: it is of definition "
        "'other', not 'mixed'; move it to that one's file",
        "definitions/rmsnorm/bare.json": "workloads/rmsnorm/bare.jsonl:1: no workload; write a trace: "
        "definition, workload",
        "definitions/rmsnorm/absent.json": "definitions/rmsnorm/absent.json: has no workloads: no file "
        "workloads/rmsnorm/absent.jsonl; download them, too",
    }


def test_many_without_workloads_are_said_in_a_few_lines(into: Importer, tmp_path: Path) -> None:
    for number in range(20):
        name = f"lonely_{number:02}"
        write_set(tmp_path / "trace", DEFINITION | {"name": name}, [])
        (tmp_path / f"trace/workloads/rmsnorm/{name}.jsonl").unlink()
    lines = into.text(tmp_path / "trace").splitlines()
    assert lines[0] == "FlashInfer-Trace: 0 of 20 problems imported"
    assert lines[4] == "  ✗ and 17 more for this reason (--json names all)"
    assert len(lines) == 6


def test_blobs_lie_where_the_data_set_puts_them(into: Importer, tmp_path: Path) -> None:
    from tests.importers.test_tensors import DEFINITION as PAGED
    from tests.importers.test_tensors import workload

    path = "./blob/workloads/paged/paged/one.safetensors"
    line = {"definition": "paged", "workload": workload(path=path), "solution": None, "evaluation": None}
    write_set(tmp_path / "trace", {**PAGED, "op_type": "paged"}, [line])
    (tmp_path / "trace" / path).parent.mkdir(parents=True)
    (tmp_path / "trace" / path).write_bytes(found_file())
    assert into(tmp_path / "trace").outcomes == {"paged": "new"}
    assert into.content()["paged/one.safetensors"] == found_file()
