"""The judge's part of [rules] and [tests]: a changed number, a real tree, another result.

The numbers are those of COORDINATION.md but for the time spent; each set of them is an epoch with its own
reference process, hence the reuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from swarm.errors import Refused
from swarm.job import Job, Purpose
from swarm.judge.compare import decide
from swarm.judge.judge import Judge
from swarm.protocol import load_protocol
from swarm.sandbox import Level, boxes
from swarm.verdict import Outcome, Status, Trust, Verdict
from tests.judge.test_compare import quads
from tests.judge.test_judge import COORDINATION, DEVICE, HONEST, LOOP, PEAKS, files, tree

TEXT = COORDINATION.read_text()


def with_values(**values: str) -> str:
    text = TEXT
    for key, value in values.items():
        text, count = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", text)
        assert count == 1, key
    return text


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge(DEVICE, tmp_path_factory.mktemp("cache"), PEAKS) as made:
        yield made


@pytest.fixture(autouse=True)
def _own_device_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWARM_DEVICE_LOCKS", str(tmp_path / "locks"))


def make_job(body: str, **values: str) -> Job:
    text = with_values(**({"budget_s": "0.05"} | values))
    frozen = {**files(), "COORDINATION.md": text.encode()}
    return Job("k", Purpose.VERDICT, "scale", f"{sorted(values.items())}", frozen, tree(body))


def judged(judge: Judge, body: str, **values: str) -> Verdict:
    return judge.verdict(make_job(body, **values))


def calls(verdict: Verdict) -> list[int]:
    assert verdict.status is Status.PASSED, verdict.reason
    return [found.calls for found in verdict.workloads]


def test_tests_bound_the_calls_from_above_and_below(judge: Judge) -> None:
    few = calls(judged(judge, HONEST, min_calls="3", max_calls="4", rounds="1"))
    many = calls(judged(judge, HONEST, min_calls="60", ci_goal="0.9", budget_s="0.001"))
    assert max(few) < 20 and min(many) >= 60


def test_tests_say_how_sure_a_time_must_be_and_how_long_that_may_take(judge: Judge) -> None:
    sloppy = calls(judged(judge, HONEST, ci_goal="0.9", budget_s="0.5"))
    hasty = calls(judged(judge, HONEST, ci_goal="0.00001", max_calls="2000", budget_s="0.001"))
    careful = calls(judged(judge, HONEST, ci_goal="0.00001", max_calls="2000", budget_s="0.5"))
    assert max(sum(sloppy), sum(hasty)) < sum(careful)


def test_tests_say_how_closely_an_output_must_match(judge: Judge) -> None:
    off = f"{LOOP} y[r * columns + c] = 1.02f * x[r * columns + c] * w[c] * float(scale);"
    assert judged(judge, off, atol="0", rtol="0.03").status is Status.PASSED
    assert judged(judge, off).status is Status.INCORRECT_NUMERICAL


def test_tests_say_how_many_elements_must_match(judge: Judge) -> None:
    some = f"{HONEST} for (int64_t r = 0; r < rows; ++r) y[r * columns] += 1e3f;"
    assert judged(judge, some).status is Status.PASSED
    assert judged(judge, some, required_matched_ratio="0.999").status is Status.INCORRECT_NUMERICAL


def test_rules_say_how_long_a_call_may_take(judge: Judge) -> None:
    hang = f"{HONEST} for (volatile bool on = true; on;) {{}}"
    verdict = judged(judge, hang, run_timeout_s="0.5")
    assert verdict.status is Status.TIMEOUT
    assert verdict.measured_s < 15


def test_rules_say_how_long_compiling_may_take(judge: Judge) -> None:
    verdict = judged(judge, f"{HONEST} /* not in the cache yet */", compile_timeout_s="0.01")
    assert verdict.status is Status.COMPILE_ERROR
    assert "0.01 s" in verdict.reason


def test_rules_say_how_much_memory_there_is(judge: Judge) -> None:
    greedy = (
        f"char* volatile more = new char[1500l << 20]; if (!more) __builtin_trap(); delete[] more; {HONEST}"
    )
    assert judged(judge, greedy).status is Status.PASSED
    assert judged(judge, greedy, memory_gib="1").status is Status.RUNTIME_ERROR


def test_rules_say_how_strong_the_sandbox_must_be(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    for at, wanted in (
        (Level.PROCESS_GROUP, "namespaces"),
        (Level.PROCESS_GROUP, "bubblewrap"),
        (Level.NAMESPACES, "bubblewrap"),
    ):
        monkeypatch.setattr(boxes, "level", lambda at=at: at)
        with pytest.raises(Refused, match=f"boxes here are {at}.* min_sandbox asks for {wanted}"):
            judged(judge, HONEST, min_sandbox=f'"{wanted}"')


def test_tests_say_how_a_comparison_is_made(judge: Judge) -> None:
    job = make_job(HONEST, quads="6", processes_per_tree="1")
    comparison = judge.compare(
        replace(job, id="c", purpose=Purpose.COMPARISON, champion=tree(f"{HONEST} // the same"))
    )
    assert {found.quads for found in comparison.workloads} == {6}


@pytest.mark.parametrize(
    ("values", "outcome"),
    [
        ({}, Outcome.FASTER),
        ({"minimum_effect": "[[inf, 0.2]]"}, Outcome.SAME),
        ({"max_workload_slowdown": "0.01"}, Outcome.UNDECIDED),
        ({"min_trust": '"device_only"'}, Outcome.UNDECIDED),
    ],
    ids=["as-it-is", "effect", "slowdown", "trust"],
)
def test_tests_say_what_counts_as_faster(values: dict[str, str], outcome: Outcome) -> None:
    found = {"a": quads(1.3, seed=1), "b": quads(1.3, seed=2), "c": quads(0.97, seed=3)}
    decision = decide(found, load_protocol(with_values(**values)).tests, seed=1, trust=Trust.HOST)
    assert decision.outcome is outcome, decision.reason


def test_tests_say_how_wide_an_interval_is() -> None:
    def width(confidence: str) -> float:
        tests = load_protocol(with_values(confidence=confidence)).tests
        decision = decide({"a": quads(1.1, noise=0.05)}, tests, seed=1)
        return decision.high - decision.low

    assert width("0.5") < width("0.9") < width("0.999")
