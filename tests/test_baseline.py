"""A stored baseline comes back as it was, and T_b is the fastest contender of each workload."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.baseline import NOT_IN_TIME, Baseline, Contender, load_baseline, save_baseline
from swarm.errors import BadInput
from swarm.layout import RunRoot

EAGER = Contender("eager", {"a": 10.0, "b": 30.0}, {"torch": "2.13.0"})
COMPILED = Contender("compile", {"a": 20.0, "b": 15.0}, {"torch": "2.13.0"})
NOT_COMPILED = Contender("compile", {}, {}, "no C++ compiler")


def baseline(*contenders: Contender) -> Baseline:
    return Baseline("p", "some-cpu", "hash", 1, 12.5, contenders)


def test_the_fastest_contender_of_each_workload_counts() -> None:
    assert baseline(EAGER, COMPILED).times_us == {"a": 10.0, "b": 15.0}


def test_a_missing_contender_is_said_so() -> None:
    assert baseline(EAGER, NOT_COMPILED).remarks == ["p: T_b without compile: no C++ compiler"]
    assert baseline(EAGER, COMPILED).remarks == []


def test_only_what_came_too_late_is_worth_measuring_again() -> None:
    late = Contender("compile", {}, {}, NOT_IN_TIME)
    assert baseline(EAGER, NOT_COMPILED).is_complete
    assert not baseline(EAGER, late).is_complete
    assert baseline(EAGER, late).times_us == {}, "a speedup over eager alone would flatter"
    assert not baseline(NOT_COMPILED).is_complete


def test_an_earlier_sitting_counts_if_the_versions_are_the_same() -> None:
    begun = Contender("compile", {"a": 20.0}, {"torch": "2.13.0"}, NOT_IN_TIME)
    known = baseline(EAGER, begun)
    assert known.kept("compile", {"torch": "2.13.0"}) == begun and not begun.is_done
    for name, versions in (("compile", {"torch": "2.14.0"}), ("baseline.py", {"torch": "2.13.0"})):
        assert known.kept(name, versions) == Contender(name, {}, versions, NOT_IN_TIME)


def test_what_is_stored_comes_back(tmp_path: Path) -> None:
    root = RunRoot(tmp_path)
    assert load_baseline(root, "some-cpu", "p") is None
    save_baseline(root, baseline(EAGER, NOT_COMPILED))
    assert load_baseline(root, "some-cpu", "p") == baseline(EAGER, NOT_COMPILED)


@pytest.mark.parametrize("text", ["", "[]", '{"problem": "p"}', '{"contenders": 3}'])
def test_a_broken_file_is_named_with_its_remedy(tmp_path: Path, text: str) -> None:
    root = RunRoot(tmp_path)
    path = root.baseline("some-cpu", "p")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(BadInput, match="swarm baseline p") as caught:
        load_baseline(root, "some-cpu", "p")
    assert caught.value.where == str(path)
