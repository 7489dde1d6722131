"""What a replay does to a record: its times count, and where there is none the record says why.

The judge, its runners and compilers are real; what stands for a replay is another tree, as a CPU has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from swarm.errors import Refused
from swarm.job import Job, Purpose
from swarm.judge.build import Built, build, frozen
from swarm.judge.desk import CpuTable
from swarm.judge.judge import Judge
from swarm.verdict import Comparison, Outcome, Status, Trust, comparison_from_json, to_json, verdict_from_json
from swarm.workload import Workload
from tests.judge.test_judge import COORDINATION, DEVICE, HONEST, PEAKS, SLOW, job, tree

WRONG = HONEST.replace("* w[c]", "+ w[c]")
CRASH = "__builtin_trap();"
NOT = "it works on 3 streams at a time"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def judge(cache: Path) -> Iterator[Judge]:
    with Judge(DEVICE, cache, PEAKS) as made:
        yield made


@pytest.fixture(autouse=True)
def _own_device_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWARM_DEVICE_LOCKS", str(tmp_path / "locks"))


Stand = Callable[[Mapping[str, str]], list[str]]


@pytest.fixture
def stand_in(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    """Let the replay of one body be another one's tree, or a reason; return what was asked for."""

    def put(bodies: Mapping[str, str]) -> list[str]:
        asked: list[str] = []

        def replayed(table: CpuTable, built: Built, workloads: Sequence[Workload]) -> Built | str:
            source = next(body for body in bodies if made[body].artifact.path == built.artifact.path)
            asked.append(source)
            other = bodies[source]
            return replace(made[other], replay_of=built) if other in made else other

        rules = frozen(job(HONEST))
        made = {}
        for body in {*bodies, *(other for other in bodies.values() if ";" in other)}:
            found = build(tree(body).files, rules, DEVICE, cache)
            assert isinstance(found, Built)
            made[body] = found
        monkeypatch.setattr(CpuTable, "replay", replayed)
        return asked

    return put


def test_the_time_of_a_replay_counts_and_not_what_was_claimed(judge: Judge, stand_in: Stand) -> None:
    stand_in({HONEST: NOT})
    claimed = judge.verdict(job(HONEST))
    stand_in({HONEST: SLOW})
    verdict = judge.verdict(job(HONEST))
    assert verdict.status is Status.PASSED
    assert (verdict.environment.trust, verdict.environment.trust_reason) == (Trust.REPLAYED, "")
    assert claimed.time_us is not None
    assert verdict.time_us is not None
    assert verdict.time_us > 2 * claimed.time_us
    assert verdict.language == "cpp"


@pytest.mark.parametrize(
    ("stands", "reason"),
    [
        (NOT, NOT),
        (WRONG, "its replay failed: INCORRECT_NUMERICAL"),
        (CRASH, "its replay failed: RUNTIME_ERROR: died of SIGILL"),
    ],
)
def test_what_has_no_replay_that_holds_is_the_word_of_its_host_code(
    judge: Judge, stand_in: Stand, stands: str, reason: str
) -> None:
    stand_in({HONEST: stands})
    verdict = judge.verdict(job(HONEST))
    assert verdict.status is Status.PASSED
    assert verdict.environment.trust is Trust.HOST
    assert verdict.environment.trust_reason.startswith(reason)
    assert verdict_from_json(to_json(verdict), "verdict") == verdict


def test_what_fails_by_itself_is_not_replayed(judge: Judge, stand_in: Stand) -> None:
    asked = stand_in({WRONG: HONEST})
    verdict = judge.verdict(job(WRONG))
    assert verdict.status is Status.INCORRECT_NUMERICAL
    assert not asked
    assert verdict.environment.trust_reason == ""


def compared(judge: Judge, champion: str, candidate: str, min_trust: str = "host") -> Comparison:
    text = COORDINATION.read_text().replace('min_trust = "host"', f'min_trust = "{min_trust}"')
    text = text.replace("quads = 30", "quads = 6").replace("processes_per_tree = 2", "processes_per_tree = 1")
    made = job(candidate, epoch=f"{min_trust}-quads")
    files = {**made.problem_files, "COORDINATION.md": text.encode()}
    return judge.compare(
        Job("c", Purpose.COMPARISON, "scale", made.epoch, files, tree(candidate), champion=tree(champion))
    )


def test_trees_are_compared_by_their_replays(judge: Judge, stand_in: Stand) -> None:
    """The candidate claims to be the faster one, and is not; the champion never claimed what it is."""
    asked = stand_in({SLOW: HONEST, HONEST: SLOW})
    comparison = compared(judge, SLOW, HONEST)
    assert comparison.outcome is Outcome.SLOWER, comparison.reason
    assert asked == [SLOW, HONEST]
    assert comparison.environment.trust is Trust.REPLAYED
    assert comparison_from_json(to_json(comparison), "comparison") == comparison


def test_a_replay_that_fails_in_a_comparison_gives_way_to_its_tree(judge: Judge, stand_in: Stand) -> None:
    stand_in({SLOW: NOT, HONEST: WRONG})
    comparison = compared(judge, SLOW, HONEST)
    assert comparison.outcome is Outcome.FASTER, comparison.reason
    assert comparison.failure is None
    assert comparison.environment.trust is Trust.HOST
    told = comparison.environment.trust_reason
    assert told.startswith(f"champion: {NOT}; candidate: its replay failed: INCORRECT_NUMERICAL")


def test_the_least_trust_is_that_of_the_candidate(judge: Judge, stand_in: Stand) -> None:
    """A champion that cannot be replayed keeps nobody out, and a candidate that cannot comes no further."""
    stand_in({SLOW: NOT, HONEST: HONEST})
    assert compared(judge, SLOW, HONEST, min_trust="replayed").outcome is Outcome.FASTER
    stand_in({SLOW: SLOW, HONEST: NOT})
    comparison = compared(judge, SLOW, HONEST, min_trust="replayed")
    assert comparison.outcome is Outcome.UNDECIDED
    assert comparison.reason.startswith("faster, but [tests] wants more trust than host")


def test_a_fault_of_ours_is_no_missing_replay(
    judge: Judge, stand_in: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(table: CpuTable, built: Built, workloads: Sequence[Workload]) -> Built | str:
        raise Refused("the GPU is gone")

    monkeypatch.setattr(CpuTable, "replay", fails)
    with pytest.raises(Refused, match="the GPU is gone"):
        judge.verdict(job(HONEST))
