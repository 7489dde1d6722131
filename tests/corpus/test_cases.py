"""The corpora are told well enough to be believed."""

from __future__ import annotations

import re

import pytest

from tests.corpus.cases import Case, cases
from tests.corpus.judged import PROBLEMS

FAMILIES = re.compile(r"A([1-9]|1[0-5])|B([1-9]|1[0-3])|C[1-7]")
every_case = pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.kind}-{case.name}")
every_honest_case = pytest.mark.parametrize("case", cases("honest"), ids=lambda case: case.name)
every_attack = pytest.mark.parametrize("case", cases("attack"), ids=lambda case: case.name)


def test_names_are_unique() -> None:
    names = [case.name for case in cases()]
    assert sorted(set(names)) == sorted(names)


@every_case
def test_a_case_says_what_it_is_and_has_a_problem(case: Case) -> None:
    assert re.match(r"[A-Z].*\.$", case.doc.split("\n\n")[0], re.DOTALL)
    assert (PROBLEMS / case.problem / "definition.json").is_file()
    assert case.on in ("cpu", "gpu")
    assert case.via in ("verdict", "comparison")


@every_attack
def test_an_attack_says_where_it_was_seen_what_stops_it_and_how_that_shows(case: Case) -> None:
    assert FAMILIES.fullmatch(case.family)
    assert re.search(r"^Seen: \S", case.doc, re.MULTILINE)
    assert re.search(r"^Stopped by: \S", case.doc, re.MULTILINE)
    assert case.reason


@every_honest_case
def test_an_honest_candidate_says_what_it_looks_like(case: Case) -> None:
    assert re.search(r"^Looks like: \S", case.doc, re.MULTILINE)


NO_CANDIDATES = {
    "A12": "a warm cache is for the judge to prevent: tests/languages/test_native.py",
    "C6": "a tree that was measured is not measured again: tests/flow/test_kills.py",
}


def test_every_family_of_known_tricks_is_tried() -> None:
    rows = {"A": 15, "B": 13, "C": 7}
    known = {f"{letter}{number}" for letter, count in rows.items() for number in range(1, count + 1)}
    assert known - {case.family for case in cases("attack")} == set(NO_CANDIDATES)


def test_the_corpora_are_as_large_as_is_claimed() -> None:
    assert len(cases("attack")) >= 60
    assert len(cases("attack", "cpu")) >= 35
    assert len(cases("honest")) >= 80
    assert len(cases("honest", "cpu")) >= 40
