"""Candidates that look suspicious and are honest pass the real judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.corpus.cases import Case, cases
from tests.corpus.judged import Outcome, judges

CASES = [
    pytest.param(case, id=case.name, marks=[pytest.mark.gpu] if case.on == "gpu" else [])
    for case in cases("honest")
]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Case], Outcome]]:
    with judges(tmp_path_factory.mktemp("judges")) as judged:
        yield judged


@pytest.mark.parametrize("case", CASES)
def test_the_honest_candidate_passes(case: Case, judged: Callable[[Case], Outcome]) -> None:
    outcome = judged(case)
    assert outcome.meets(case), f"wants {case.status}: /{case.reason}/, got {outcome}"
