"""What the judge makes of a runner's answers, from a runner that answers as it is told to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from swarm.errors import Refused
from swarm.judge.cuda import runner as runners
from swarm.judge.cuda.clocks import LEAST_SPIN_NS, Clocks
from swarm.judge.cuda.runner import LOOKED_AT_SHARE, CudaRunner
from swarm.judge.cuda.wire import (
    CALL,
    FAILED,
    FAULT,
    READY,
    TRICK,
    Claim,
    Clock,
    Request,
    pack_claims,
    unpack_load,
)
from swarm.judge.runner import Slot
from swarm.languages.protocol import Artifact, Failure, KernelInfo, Kind
from swarm.problem import problem_from_files
from swarm.verdict import Status

PROBLEM = problem_from_files(
    {
        "definition.json": b"""{"name": "copy", "axes": {"n": {"type": "var"}},
          "inputs": {"x": {"shape": ["n"], "dtype": "float32"}},
          "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
          "reference": "def run(x):\\n    return x\\n"}""",
        "workload.jsonl": b'{"uuid": "w", "axes": {"n": 1}, "inputs": {"x": {"type": "random"}}}\n',
    },
    "copy",
)
SLOTS = [Slot((0,), (256,), {"n": 1}), Slot((512,), (768,), {"n": 1})]
HONEST = Claim(5_000, 5_000, 40_000, 1, 77, 132, False)
Answer = Callable[[Request], bytes]


class Runner:
    """The other end: it speaks the same words, and takes a millisecond for every request."""

    def __init__(self, *answers: Answer, loaded: bytes = READY) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.head: dict[str, object] = {}
        self.pid = None
        self.beside: list[int] = []
        self.log = "what it printed"
        self._loaded = loaded
        self._next = b""

    def send(self, data: bytes, fds: tuple[int, ...] = ()) -> Failure | None:
        if data.startswith(CALL):
            self.requests.append(Request.unpack(data))
            self._next = self.answers[min(len(self.requests), len(self.answers)) - 1](self.requests[-1])
        else:
            self.head, _ = unpack_load(data)
            self._next = self._loaded
        return None

    def receive(self, limit_s: float, *, waits_s: float = 0.0) -> bytes | Failure:
        time.sleep(0.001)
        return self._next

    def signal(self, number: int) -> None: ...

    def others(self) -> list[int]:
        return self.beside

    def close(self) -> None: ...


def claiming(*claims: Claim) -> Answer:
    return lambda request: pack_claims(request.nonce, claims * (2 // len(claims)))


def runner(
    other: Runner, kind: Kind = Kind.PLAN, clocks: Clocks | None = None, **changes: object
) -> CudaRunner:
    artifact = replace(Artifact(kind, Path(__file__), "run"), **changes)  # type: ignore[arg-type]
    return CudaRunner(
        artifact,
        PROBLEM,
        SimpleNamespace(fd=0, size=4096),  # type: ignore[arg-type]
        SimpleNamespace(wait_for=lambda process: None, offset_ns=1_000.0),  # type: ignore[arg-type]
        clocks or Clocks(),
        memory_bytes=1 << 30,
        timeout_s=10,
        process=other,  # type: ignore[arg-type]
    )


def failure(of: CudaRunner, times: int = 1) -> Failure:
    for _ in range(times):
        claims = of.call(SLOTS)
    assert isinstance(claims, Failure), claims
    return claims


def test_the_first_request_is_timed_by_events_and_the_next_by_what_suits_its_time() -> None:
    for ns, name, clock in ((5_000, "CUPTI", Clock.CUPTI), (50_000, "events", Clock.EVENTS)):
        other = Runner(claiming(replace(HONEST, ns=ns + 1_000)))  # 1 us is what events read too much
        it = runner(other)
        assert it.call(SLOTS) == [ns, ns]
        assert it.clock == "events"
        it.call(SLOTS)
        assert it.clock == name
        assert [(r.clock, r.is_first) for r in other.requests] == [(Clock.EVENTS, True), (clock, False)]


def test_each_workload_has_its_own_clock_and_first_request() -> None:
    other = Runner(claiming(HONEST))
    it = runner(other)
    for axes in ({"n": 1}, {"n": 2}, {"n": 1}):
        it.call([replace(slot, axes=axes) for slot in SLOTS])
    assert [r.is_first for r in other.requests] == [True, True, False]


def test_a_first_request_switches_no_clock_but_shows_all_streams_of_host_code() -> None:
    for kind, clocks in ((Kind.PLAN, [0, 1, 1]), (Kind.PYTHON, [1, 1, 1])):
        other = Runner(claiming(HONEST))
        it = runner(other, kind)
        for axes in ({"n": 1}, {"n": 1}, {"n": 2}):
            it.call([replace(slot, axes=axes) for slot in SLOTS])
        assert [r.clock for r in other.requests] == clocks


def test_two_runners_of_one_job_use_one_clock() -> None:
    clocks = Clocks()
    slow = Runner(claiming(replace(HONEST, ns=90_000, blocks=5)))
    quick = Runner(claiming(HONEST))
    one, other = runner(slow, clocks=clocks), runner(quick, clocks=clocks)
    for it in (one, other, one, other):
        it.call(SLOTS)
    assert slow.requests[1].clock is quick.requests[1].clock is Clock.CUPTI


def test_the_gpu_waits_as_long_as_calls_take_to_queue_but_not_for_those_that_wait_for_it() -> None:
    other = Runner(
        claiming(replace(HONEST, enqueue_ns=200_000)),
        claiming(replace(HONEST, enqueue_ns=300_000)),
        claiming(replace(HONEST, enqueue_ns=90_000_000, is_late=True)),
    )
    it = runner(other)
    for _ in range(4):
        it.call(SLOTS)
    assert [r.spin_ns - LEAST_SPIN_NS for r in other.requests] == [0, 400_000, 600_000, 600_000]
    assert it.late == 4


@pytest.mark.parametrize(
    "answer",
    [
        lambda request: pack_claims(bytes(8), [HONEST, HONEST]),
        lambda request: pack_claims(request.nonce, [HONEST]),
        lambda request: b"",
        lambda request: READY,
        lambda request: FAILED + bytes(8) + b"it was not me",
    ],
)
def test_a_forged_answer_is_a_hack(answer: Answer) -> None:
    assert failure(runner(Runner(answer))).status is Status.REWARD_HACK


@pytest.mark.parametrize("ns", [10**10, 0, -5])
def test_claims_that_cannot_be_are_a_hack(ns: int) -> None:
    told = failure(runner(Runner(claiming(HONEST), claiming(replace(HONEST, ns=ns)))), 2)
    assert told.status is Status.REWARD_HACK
    assert "the runner claims" in told.reason


@pytest.mark.parametrize(
    ("change", "words"),
    [({"activities": 2}, "2 kernels, copies and fills after 1"), ({"signature": 78}, "other kernels")],
)
def test_calls_that_do_other_work_than_before_are_a_hack(change: dict[str, int], words: str) -> None:
    other = Runner(claiming(HONEST), claiming(HONEST), claiming(HONEST, replace(HONEST, **change)))
    told = failure(runner(other), 3)
    assert told.status is Status.REWARD_HACK
    assert words in told.reason


def test_work_that_the_given_stream_does_not_show_is_a_hack_of_host_code_alone() -> None:
    hidden = claiming(replace(HONEST, ns=200_000, other_ns=30_000))
    assert "nobody waits for the rest" in failure(runner(Runner(hidden), Kind.SHARED_OBJECT)).reason
    assert isinstance(runner(Runner(hidden)).call(SLOTS), list)


def test_what_a_candidate_did_is_told_in_its_words_and_only_repeated() -> None:
    other = Runner(lambda request: FAILED + request.nonce + b"CUDA_ERROR_ILLEGAL_ADDRESS")
    it = runner(other)
    told = failure(it)
    assert (told.status, told.reason) == (Status.RUNTIME_ERROR, "CUDA_ERROR_ILLEGAL_ADDRESS")
    assert it.failed
    assert failure(it) is told
    assert len(other.requests) == 1


def test_what_a_runner_saw_of_a_trick_is_told_as_one() -> None:
    told = failure(runner(Runner(lambda request: TRICK + request.nonce + b"3 kernels ran beside")))
    assert (told.status, told.reason) == (Status.REWARD_HACK, "3 kernels ran beside")


def test_cupti_looks_on_now_and_then_where_events_time_host_code(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = replace(HONEST, ns=50_000, other_ns=51_000)
    for kind, share, seen in (
        (Kind.SHARED_OBJECT, 1.0, [Clock.CUPTI] * 3),
        (Kind.SHARED_OBJECT, 0.0, [Clock.CUPTI, Clock.EVENTS, Clock.EVENTS]),
        (Kind.PLAN, 1.0, [Clock.EVENTS] * 3),
    ):
        monkeypatch.setattr(runners, "LOOKED_AT_SHARE", share)
        clocks = Clocks()
        other = Runner(claiming(slow))
        it = runner(other, kind, clocks)
        it.call(SLOTS)
        assert clocks.spoiled() == ""
        it.call(SLOTS)
        told = [clocks.spoiled(), clocks.spoiled()]
        assert told == ["CUPTI looked on" if share and kind is not Kind.PLAN else "", ""]
        it.call(SLOTS)
        assert [request.clock for request in other.requests] == seen
    assert 0.01 < LOOKED_AT_SHARE < 0.1


def test_other_kernels_are_seen_where_events_rank_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "LOOKED_AT_SHARE", 1.0)
    slow = replace(HONEST, ns=50_000, other_ns=51_000)
    told = failure(
        runner(Runner(claiming(slow), claiming(replace(slow, activities=2))), Kind.SHARED_OBJECT), 2
    )
    assert told.reason == "not all calls do the same work: 2 kernels, copies and fills after 1"


def test_host_code_must_be_alone_in_its_box_when_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    for share, requests in ((0.0, 1), (1.0, 2)):
        monkeypatch.setattr(runners, "LOOKED_AT_SHARE", share)
        other = Runner(claiming(HONEST))
        it = runner(other, Kind.SHARED_OBJECT)
        if requests > 1:
            it.call(SLOTS)
        other.beside = [4711]
        told = failure(it)
        assert told.status is Status.REWARD_HACK
        assert "1 other processes were in its box when it answered" in told.reason
    other = Runner(claiming(HONEST))
    other.beside = [4711]
    assert isinstance(runner(other).call(SLOTS), list), "nobody could have started it"


def test_a_fault_of_ours_is_no_failure_unless_a_candidate_could_have_told_it() -> None:
    def fault(request: Request) -> bytes:
        return FAULT + request.nonce + b"records were lost"

    with pytest.raises(Refused, match="records were lost"):
        runner(Runner(fault)).call(SLOTS)
    assert failure(runner(Runner(fault), Kind.PYTHON)).status is Status.RUNTIME_ERROR
    with pytest.raises(Refused, match="no memory"):
        runner(Runner(loaded=FAULT + b"no memory"), Kind.PYTHON).call(SLOTS)


def test_names_of_our_own_kernels_are_refused() -> None:
    info = KernelInfo("swarm_close", "swarm_close", 0, 1, 0, 0, 0, 0, ())
    told = failure(runner(Runner(claiming(HONEST)), kernels=(info,)))
    assert told.status is Status.INVALID_SOLUTION
    assert "swarm_close" in told.reason


def test_what_is_to_come_before_a_request_does() -> None:
    other = Runner(claiming(HONEST))
    seen: list[int] = []
    it = runner(other)
    it._before = lambda: seen.append(len(other.requests))
    for _ in range(3):
        it.call(SLOTS)
    assert seen == [0, 1, 2]


def test_a_runner_is_told_all_that_it_needs_and_no_path() -> None:
    other = Runner(claiming(HONEST))
    runner(other, Kind.PYTHON, returns_outputs=True).call(SLOTS)
    assert other.head["kind"] == "python"
    assert other.head["returns_outputs"] is True
    assert str(Path(__file__).parent) not in str(other.head)
