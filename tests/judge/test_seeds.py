"""The seeds that ship are right at every corner of their search space, for every kind of input."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence

import pytest

from swarm.device import cpu_device
from swarm.judge.build import Built, Frozen, build
from swarm.judge.desk import CpuDesk
from swarm.judge.inputs import ROUND
from swarm.judge.sitting import Sitting
from swarm.languages.protocol import Failure
from swarm.problem import Problem
from swarm.protocol import Protocol, load_protocol
from swarm.solution import Param, load_manifest, with_params
from tests.suite.shipped import ROOT, seeded, shipped

DEVICE = cpu_device()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CpuDesk]:
    cores = os.sched_getaffinity(0)
    with CpuDesk(DEVICE, tmp_path_factory.mktemp("cache")) as made:
        yield made
    os.sched_setaffinity(0, cores)


@pytest.mark.parametrize("name", seeded("cpp"))
def test_seed_is_right_wherever_its_knobs_stand(name: str, desk: CpuDesk) -> None:
    problem = shipped(name)
    protocol = load_protocol((ROOT / "COORDINATION.md").read_text(), "COORDINATION.md")
    seed = problem.seeds["cpp"]
    for params in corners(load_manifest(seed).tune):
        made = build(with_params(seed, params), Frozen(problem, protocol), DEVICE, desk.cache)
        assert isinstance(made, Built), made
        for reason in wrong_calls(made, problem, protocol, desk):
            pytest.fail(f"{params}: {reason}")


def corners(tune: Mapping[str, Sequence[Param]]) -> list[dict[str, Param]]:
    """Return the seed as it is, the last value of every knob, and points between."""
    dice = random.Random(7)
    between = [{name: dice.choice(values) for name, values in tune.items()} for _ in range(3)]
    return [{}, {name: values[-1] for name, values in tune.items()}, *between]


def wrong_calls(built: Built, problem: Problem, protocol: Protocol, desk: CpuDesk) -> Iterator[str]:
    """Call a kernel once for every kind of input of the smallest workload; yield what was wrong."""
    workload = min(problem.cpu_workloads, key=problem.sol_bytes)
    shared, private = desk.memories(problem, [workload])
    reference = desk.reference(problem.name, problem)
    sitting = Sitting(problem, workload, protocol.tests, reference, shared, private, "seed")
    with desk.runner(built.artifact, problem, shared.arena, memory_gib=1, timeout_s=30) as runner:
        calls = sitting.fill(len(ROUND))
        claims = runner.call([call.slot for call in calls])
        if isinstance(claims, Failure):
            yield claims.reason
            return
        found = [sitting.inspect([call], [True]) for call in calls]
        yield from (failure.reason for failure in found if failure)
