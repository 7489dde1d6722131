"""The tuner hands in unseen points of the champion's space, a few at a time, and says what it changes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from swarm.agents.protocol import Attempt, Progress
from swarm.agents.tuner import IN_FLIGHT, Tuner, family_of, space_of, subject
from swarm.errors import BadInput
from swarm.layout import WorkBranch
from swarm.solution import load_manifest
from swarm.verdict import Status
from tests.support import TUNE, solution

CHAMPION = solution(TUNE, BLOCK=1, UNROLL=1)
OWN, OTHER = WorkBranch("rope", "w1", 1), WorkBranch("rope", "w2", 1)


@dataclass
class Table:
    """A desk over a list of attempts."""

    made: list[tuple[Attempt, Mapping[str, bytes]]] = field(default_factory=list)
    subjects: list[str] = field(default_factory=list)
    branch: WorkBranch = OWN
    worktree: Path = Path("/nonexistent")

    def champion(self) -> Mapping[str, bytes]:
        return CHAMPION

    def solution(self, attempt: Attempt) -> Mapping[str, bytes]:
        files = dict(self.made)[attempt]
        if not files:
            raise BadInput("a link", where="solution/kernel.cpp")
        return files

    def attempts(self) -> list[Attempt]:
        return [attempt for attempt, _ in self.made]

    def submit(self, files: Mapping[str, bytes], subject: str, body: str = "") -> str:
        self.subjects.append(subject)
        return self.add(files, OWN)

    def wants_stop(self) -> bool:
        return False

    def add(self, files: Mapping[str, bytes], branch: WorkBranch | None, status: Status | None = None) -> str:
        tree = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        time_us = 10.0 if status is Status.PASSED else None
        self.made.append((Attempt(f"c{len(self.made)}", tree, branch, "", status, time_us), files))
        return f"c{len(self.made) - 1}"

    def judge_all(self) -> None:
        self.made = [(replace(a, status=Status.PASSED, time_us=10.0), files) for a, files in self.made]


def params(files: Mapping[str, bytes]) -> tuple[object, ...]:
    return tuple(load_manifest(files).params.values())


def test_no_more_than_a_few_commits_are_in_flight() -> None:
    desk, tuner = Table(), Tuner()
    desk.add(CHAMPION, None, Status.PASSED)
    assert [tuner.step(desk) for _ in range(4)] == [Progress.SUBMITTED] * IN_FLIGHT + [Progress.WAITING] * 2
    desk.judge_all()
    assert tuner.step(desk) is Progress.SUBMITTED


def test_every_point_once_and_then_exhausted_when_the_last_is_judged() -> None:
    desk, tuner = Table(), Tuner()
    desk.add(CHAMPION, None, Status.PASSED)
    while tuner.step(desk) is Progress.SUBMITTED:
        if len(desk.made) < 8:
            desk.judge_all()
    assert sorted(params(files) for _, files in desk.made) == sorted(
        (b, u) for b in (1, 2, 4) for u in (1, 2, 3)
    )
    assert tuner.step(desk) is Progress.WAITING
    desk.judge_all()
    assert tuner.step(desk) is Progress.EXHAUSTED


def test_points_that_others_tried_are_not_tried_again_and_other_sources_are_another_space() -> None:
    desk = Table()
    desk.add(CHAMPION, None, Status.PASSED)
    for block in (1, 2, 4):
        for unroll in (1, 2, 3):
            if (block, unroll) not in ((1, 1), (4, 3)):
                desk.add(solution(TUNE, BLOCK=block, UNROLL=unroll), OTHER, Status.TIMEOUT)
    desk.add({**solution(TUNE, BLOCK=4, UNROLL=3), "kernel.cpp": b"int other;\n"}, OTHER, Status.PASSED)
    desk.add({"solution.toml": b"nonsense"}, OTHER, Status.INVALID_SOLUTION)
    desk.add({}, OTHER, Status.INVALID_SOLUTION)
    assert Tuner().step(desk) is Progress.SUBMITTED
    assert params(desk.made[-1][1]) == (4, 3)
    assert desk.subjects == ["BLOCK 1 -> 4, UNROLL 1 -> 3"]


def test_a_solution_without_a_space_is_exhausted_at_once() -> None:
    desk = Table()
    desk.champion = lambda: solution(BLOCK=1)  # type: ignore[method-assign]
    assert Tuner().step(desk) is Progress.EXHAUSTED


def test_a_restarted_tuner_goes_on_as_the_old_one_would_have() -> None:
    old, new = Table(), Table()
    tuner = Tuner()
    for desk in (old, new):
        desk.add(CHAMPION, None, Status.PASSED)
    for _ in range(7):
        tuner.step(old)
        Tuner().step(new)
        old.judge_all()
        new.judge_all()
    assert old.subjects == new.subjects


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ({"A": 64, "B": 1}, "The same parameters again"),
        ({"A": 256, "B": 1}, "A 64 -> 256"),
        ({"A": 256, "B": 8}, "A 64 -> 256, B 1 -> 8"),
    ],
)
def test_a_subject_says_what_changes(after: dict[str, int], expected: str) -> None:
    assert subject({"A": 64, "B": 1, "C": 5}, after) == expected


def test_a_family_is_everything_but_the_tuned_parameters() -> None:
    space = space_of(CHAMPION)
    assert family_of(CHAMPION, space) == family_of(solution(TUNE, BLOCK=4, UNROLL=2), space)
    assert family_of(CHAMPION, space) != family_of({**CHAMPION, "more.h": b""}, space)
