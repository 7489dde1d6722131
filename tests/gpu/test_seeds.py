"""The seeds for a GPU keep to the protocol, say what their knobs do, and compile all over their spaces."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from swarm.judge.build import Built, build
from swarm.judge.judge import Judge
from swarm.protocol import load_protocol
from swarm.solution import load_manifest, validate_tree, with_params
from swarm.verdict import Status, Verdict
from tests.gpu import trees
from tests.suite.shipped import SEVEN, seeded, shipped

SOURCES = {"cuda": ("kernel.cu", "// "), "triton": ("kernel.py", "")}
SEEDS = [f"{name}/{language}" for language in SOURCES for name in seeded(language)]


def seed(name: str) -> dict[str, bytes]:
    problem, _, language = name.partition("/")
    return shipped(problem).seeds[language]


@pytest.mark.parametrize("name", SEEDS)
def test_seed_keeps_to_the_protocol_and_leaves_something_to_find(name: str) -> None:
    files = seed(name)
    validate_tree(files, load_protocol(trees.coordination(), "COORDINATION.md"))
    manifest = load_manifest(files)
    least = 50 if name.partition("/")[0] in SEVEN else 2
    assert least <= math.prod(map(len, manifest.tune.values())) <= 500
    assert manifest.params.keys() == manifest.tune.keys()
    for knob, value in manifest.params.items():
        assert value in manifest.tune[knob]


@pytest.mark.parametrize("name", SEEDS)
def test_seed_says_what_every_knob_does(name: str) -> None:
    file, comment = SOURCES[name.partition("/")[2]]
    lines = seed(name)[file].decode().splitlines()
    for knob in load_manifest(seed(name)).params:
        assert any(line.startswith(f"{comment}{knob} ") for line in lines), knob


@pytest.mark.parametrize("corner", [0, -1], ids=["first", "last"])
@pytest.mark.parametrize("name", [f"{name}/cuda" for name in seeded("cuda")])
def test_corners_of_the_search_space_compile(name: str, corner: int, tmp_path: Path) -> None:
    files, problem = seed(name), shipped(name.partition("/")[0])
    at = with_params(files, {knob: values[corner] for knob, values in load_manifest(files).tune.items()})
    made = build(at, trees.frozen(problem), trees.ABSENT_H200, tmp_path)
    assert isinstance(made, Built), f"{made.reason}\n{made.log}"


@pytest.mark.gpu
@pytest.mark.parametrize("name", SEEDS)
def test_seed_passes_on_a_gpu_at_the_corners_of_its_space_and_is_not_faster_than_light(
    name: str, judge: Judge
) -> None:
    files, problem = seed(name), shipped(name.partition("/")[0])
    tune = load_manifest(files).tune
    corners = {
        "seed": files,
        "first": with_params(files, {knob: values[0] for knob, values in tune.items()}),
        "last": with_params(files, {knob: values[-1] for knob, values in tune.items()}),
    }
    for corner, at in corners.items():
        verdict = judge.judge(trees.job(problem, at, name=f"{name}-{corner}"))
        assert isinstance(verdict, Verdict)
        print(name, corner, verdict.status, verdict.time_us, f"{verdict.total_s:.2f} s")
        assert verdict.status is Status.PASSED, f"{corner}: {verdict.reason}\n{verdict.log}"
        for result in verdict.workloads:
            assert result.time_us is not None and result.t_sol_us is not None
            assert 0 < result.t_sol_us <= result.time_us, f"{corner}: workload {result.uuid}"
