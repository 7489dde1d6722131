"""What is recorded stays, and the index always agrees with the files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm.errors import BadInput, Refused
from swarm.layout import RunPaths
from swarm.ledger import Ledger
from swarm.verdict import Outcome, Status, to_json, verdict_key
from tests.records import DEVICE, comparison, verdict


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(RunPaths(tmp_path, "local")) as opened:
        yield opened


def test_recorded_verdict_comes_back_equal(ledger: Ledger) -> None:
    made = verdict()
    assert ledger.record(made)
    assert ledger.verdict("p", made.key) == made
    assert ledger.verdicts("p") == [made]
    assert ledger.problems() == ["p"]


def test_recorded_comparison_comes_back_equal(ledger: Ledger) -> None:
    made = comparison()
    assert ledger.record(made)
    assert ledger.comparison("p", made.id) == made
    assert ledger.comparisons("p") == [made]


def test_second_record_of_a_key_changes_nothing(ledger: Ledger) -> None:
    first, second = verdict(time_us=10), verdict(time_us=20)
    assert ledger.record(first)
    assert not ledger.record(second)
    assert ledger.verdicts("p") == [first]


def test_what_is_not_there_is_none_or_empty(ledger: Ledger) -> None:
    assert ledger.verdict("p", "0" * 32) is None
    assert ledger.comparison("p", "x") is None
    assert ledger.verdicts("p") == ledger.comparisons("p") == ledger.facts() == ledger.facts("p") == []
    assert ledger.refusals("p") == {}
    assert ledger.problems() == []


def test_refusal_is_kept_once_with_its_reason(ledger: Ledger) -> None:
    assert ledger.refuse("p", "c1", "changes definition.json")
    assert not ledger.refuse("p", "c1", "another reason")
    assert ledger.refusals("p")["c1"].reason == "changes definition.json"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"key": 1}', b"\xff\x00"], ids=repr)
def test_broken_file_is_named_and_the_others_stay_readable(ledger: Ledger, content: bytes) -> None:
    good, path = verdict(), ledger.paths.verdict("p", "f" * 32)
    ledger.record(good)
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"f{32}\.json: not a verdict: .*delete the file"):
        ledger.verdict("p", "f" * 32)
    assert ledger.verdicts("p") == [good]
    assert [error.where for error in ledger.broken("p")] == [str(path)]
    assert {(fact.key, fact.status) for fact in ledger.facts("p")} == {
        (good.key, Status.PASSED),
        ("f" * 32, None),
    }


def test_broken_comparison_and_refusal_are_named_too(ledger: Ledger) -> None:
    ledger.record(comparison())
    ledger.refuse("p", "c1", "why")
    ledger.paths.comparison("p", "zzz").write_bytes(b"{}")
    (ledger.paths.refusals("p") / "c2.json").write_bytes(b"[]")
    assert [Path(error.where or "").name for error in ledger.broken("p")] == ["zzz.json", "c2.json"]
    assert len(ledger.comparisons("p")) == len(ledger.refusals("p")) == 1
    assert [fact.outcome for fact in ledger.comparison_facts("p")] == [None, Outcome.FASTER]


def test_facts_say_what_the_files_say(ledger: Ledger) -> None:
    made = verdict(time_us=12.5)
    ledger.record(made)
    ledger.record(verdict("q", status=Status.TIMEOUT))
    (fact,) = ledger.facts("p")
    assert (fact.key, fact.tree, fact.epoch, fact.commit) == (made.key, made.tree, made.epoch, made.commit)
    assert (fact.device_model, fact.language, fact.judge_version) == (DEVICE, "cpp", made.judge_version)
    assert fact.time_us == pytest.approx(12.5)
    assert fact.t_sol_us == pytest.approx(2.0)
    assert [(f.problem, f.status, f.time_us is None) for f in ledger.facts()] == [
        ("p", Status.PASSED, False),
        ("q", Status.TIMEOUT, True),
    ]


def test_comparison_facts_say_what_the_files_say(ledger: Ledger) -> None:
    ledger.record(comparison())
    (fact,) = ledger.comparison_facts()
    assert (fact.id, fact.outcome, fact.ratio) == ("a-b-1", Outcome.FASTER, 1.1)
    assert (fact.champion_tree, fact.candidate_tree, fact.device_model) == ("t1", "t2", DEVICE)


def test_facts_see_every_new_file_at_once_even_within_a_tick_of_the_clock(ledger: Ledger) -> None:
    for number in range(30):
        ledger.record(verdict(tree=f"t{number}", key=f"{number:032d}"))
        assert len(ledger.facts("p")) == number + 1


def test_deleted_and_replaced_files_show_in_the_facts(ledger: Ledger) -> None:
    made = verdict(time_us=10)
    ledger.record(made)
    ledger.record(verdict(tree="t2", key="2" * 32))
    assert len(ledger.facts("p")) == 2
    ledger.paths.verdict("p", "2" * 32).unlink()
    assert [fact.key for fact in ledger.facts("p")] == [made.key]
    ledger.paths.verdict("p", made.key).unlink()
    ledger.record(verdict(time_us=20))
    assert [fact.time_us for fact in ledger.facts("p")] == [pytest.approx(20)]


def test_index_is_used_and_can_be_deleted(ledger: Ledger) -> None:
    ledger.record(verdict())
    before = ledger.facts()
    ledger.close()
    with Ledger(ledger.paths) as second:
        assert second.facts() == before
    ledger.paths.index.unlink()
    with Ledger(ledger.paths) as third:
        assert third.facts() == before


@pytest.mark.parametrize("damage", ["garbage", "truncated", "flipped"])
def test_damaged_index_is_built_again(ledger: Ledger, damage: str) -> None:
    for number in range(50):
        ledger.record(verdict(tree=f"t{number}", key=f"{number:032d}"))
    before = ledger.facts()
    ledger.close()
    index = ledger.paths.index
    content = index.read_bytes()
    broken = {
        "garbage": b"not a database" * 100,
        "truncated": content[: len(content) // 2],
        "flipped": content[:100] + b"\xff" * (len(content) - 100),
    }
    index.write_bytes(broken[damage])
    with Ledger(ledger.paths) as second:
        assert second.facts() == before


def test_index_of_another_schema_is_built_again(ledger: Ledger) -> None:
    import sqlite3

    ledger.record(verdict())
    before = ledger.facts()
    ledger.close()
    database = sqlite3.connect(ledger.paths.index)
    database.execute("PRAGMA user_version = 99")
    database.close()
    with Ledger(ledger.paths) as second:
        assert second.facts() == before


def test_index_in_a_folder_that_is_a_file_refuses_by_name(ledger: Ledger) -> None:
    ledger.record(verdict())
    ledger.paths.index.mkdir(parents=True)
    with pytest.raises(Refused, match=r"index\.sqlite: the index cannot be used"):
        ledger.facts()


def test_readers_in_other_processes_agree_while_one_writes(ledger: Ledger) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from swarm.layout import RunPaths; from swarm.ledger import Ledger\n"
        "with Ledger(RunPaths(Path(sys.argv[1]), 'local')) as ledger:\n"
        "    seen = 0\n"
        "    while seen < 60:\n"
        "        now = len(ledger.facts('p'))\n"
        "        assert now >= seen, (now, seen)\n"
        "        seen = now\n"
    )
    argv = [sys.executable, "-c", code, str(ledger.paths.root)]
    readers = [subprocess.Popen(argv) for _ in range(3)]
    for number in range(60):
        ledger.record(verdict(tree=f"t{number}", key=f"{number:032d}"))
        time.sleep(0.003)
    assert [reader.wait(timeout=60) for reader in readers] == [0, 0, 0]


def test_abandoned_temporary_file_is_no_record_and_is_swept(ledger: Ledger) -> None:
    ledger.record(verdict())
    left = ledger.paths.verdicts("p") / ".tmp-x.part"
    left.write_bytes(to_json(verdict())[:20])
    os.utime(left, (1, 1))
    assert len(ledger.facts("p")) == 1
    assert not left.exists()
    assert ledger.broken("p") == []


def test_read_only_results_refuse_and_leave_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(Refused, match=r"cannot write: Read-only file system; make it writable"):
        ledger.record(verdict())
    monkeypatch.undo()
    assert ledger.verdicts("p") == []


def test_keys_differ_by_everything_a_verdict_is_about() -> None:
    keys = {
        verdict_key("t", "e", "d"),
        verdict_key("u", "e", "d"),
        verdict_key("t", "f", "d"),
        verdict_key("t", "e", "c"),
        verdict_key("t", "e", "d", 99),
    }
    assert len(keys) == 5
