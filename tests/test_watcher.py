"""The watcher finds every commit by scanning, with or without file events, and believes no file blindly."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swarm.changes import Changes
from swarm.requests import Request, ask
from swarm.role import Stop, beats
from swarm.verdict import JUDGE_VERSION, verdict_key
from tests.support import Swarm, make_root, solution


@contextmanager
def watching(swarm: Swarm) -> Iterator[None]:
    """Run the watcher in a thread, as a process would."""
    stop = Stop(swarm.paths.stop)
    failures: list[BaseException] = []

    def run() -> None:
        with Swarm(swarm.root, workers=()) as own:  # its own hub and ledger, as a process has
            try:
                own.watcher.run(stop)
            except BaseException as error:
                failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        swarm.paths.stop.write_text("{}")
        thread.join(10)
        swarm.paths.stop.unlink()
        assert not thread.is_alive()
        assert not failures


def wait_for_verdicts(swarm: Swarm, count: int, timeout_s: float = 20.0) -> None:
    end_s = time.monotonic() + timeout_s
    while len(swarm.ledger.verdicts("rope")) < count:
        assert time.monotonic() < end_s, f"no {count} verdicts after {timeout_s} s"
        time.sleep(0.02)


def test_commits_get_their_verdicts_while_it_runs_and_those_made_before(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path), workers=()) as swarm:
        swarm.start("rope")
        branch = swarm.hub.assign("rope", "w1")
        with watching(swarm):
            wait_for_verdicts(swarm, 1)
            swarm.hub.submit("w1", branch, solution(BLOCK=2, UNROLL=1), None, "Double", {})
            wait_for_verdicts(swarm, 2)
        found = beats(swarm.paths)["watcher"]
        assert found.facts["events"] == "arriving"
        assert found.is_alive


def test_without_file_events_it_polls_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from watchdog.observers.inotify import InotifyObserver

    def no_instances(self: object) -> None:
        raise OSError(24, "inotify instance limit reached")

    monkeypatch.setattr(InotifyObserver, "start", no_instances)
    with Swarm(make_root(tmp_path), workers=()) as swarm:
        swarm.start("rope")
        branch = swarm.hub.assign("rope", "w1")
        with watching(swarm):
            wait_for_verdicts(swarm, 1)
            swarm.hub.submit("w1", branch, solution(BLOCK=2, UNROLL=1), None, "Double", {})
            wait_for_verdicts(swarm, 2)
        assert (
            "no file events (inotify instance limit reached); polling"
            in beats(swarm.paths)["watcher"].facts["events"]
        )


def test_a_dead_observer_is_noticed(tmp_path: Path) -> None:
    with Changes([tmp_path]) as changes:
        assert changes.take()
        assert changes.fault is None
        (tmp_path / "x").write_text("1")
        end_s = time.monotonic() + 10
        while not changes.take():
            assert time.monotonic() < end_s
            time.sleep(0.01)
        assert changes._observer is not None
        changes._observer.stop()
        changes._observer.join(5)
        assert changes.fault == "the file observer died; polling"


def test_a_second_watcher_records_nothing_twice(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    with Swarm(root, workers=()) as first, Swarm(root, workers=()) as second:
        first.start("rope")
        first.watcher.scan()
        second.watcher.scan()
        assert first.watcher.take(0.0) + second.watcher.take(0.0) == 1
        assert len(first.ledger.verdicts("rope")) == 1


def test_a_deleted_result_is_measured_again(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path), workers=()) as swarm:
        now = [1000.0]
        swarm.watcher.clock = lambda: now[0]
        swarm.start("rope")
        assert swarm.watcher.step(0.0) == 1
        [verdict] = swarm.ledger.verdicts("rope")
        swarm.paths.verdict("rope", verdict.key).unlink()
        now[0] += 31
        assert swarm.watcher.step(0.0) == 1


def test_a_broken_result_is_left_alone_and_stops_nothing_else(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path), workers=()) as swarm:
        swarm.start("rope")
        assert swarm.watcher.step(0.0) == 1
        [path] = swarm.paths.verdicts("rope").iterdir()
        path.write_text("{}")
        branch = swarm.hub.assign("rope", "w1")
        swarm.hub.submit("w1", branch, solution(BLOCK=2, UNROLL=1), None, "Double", {})
        swarm.watcher.step(0.0)
        swarm.watcher.step(0.0)
        assert path.read_text() == "{}"
        assert len(swarm.ledger.verdicts("rope")) == 1
        [error] = swarm.ledger.broken("rope")
        assert str(path) in str(error)


def test_a_raised_judge_version_judges_only_seeds_and_champions_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Swarm(make_root(tmp_path)) as swarm:
        swarm.start("rope")
        swarm.until(swarm.is_quiet)
        before = len(swarm.ledger.verdicts("rope"))
    raised = JUDGE_VERSION + 1
    monkeypatch.setattr("swarm.watcher.JUDGE_VERSION", raised)
    monkeypatch.setattr("swarm.watcher.verdict_key", lambda t, e, d, v=raised: verdict_key(t, e, d, v))
    with Swarm(make_root(tmp_path), workers=()) as swarm:
        for _ in range(20):
            swarm.watcher.step(0.0)
        assert len(swarm.ledger.verdicts("rope")) == before + 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"problem": "nowhere"}, "there is no problem nowhere"),
        ({"candidate": "f" * 40}, "a commit is not of the current epoch of rope"),
    ],
)
def test_a_request_for_what_is_not_there_is_named(
    tmp_path: Path, change: dict[str, str], message: str
) -> None:
    with Swarm(make_root(tmp_path), workers=()) as swarm:
        swarm.start("rope")
        head = swarm.hub.champions()["rope"]
        fields = {"id": "0123abcd-4567cdef-1", "problem": "rope", "champion": head, "candidate": head}
        ask(swarm.paths, Request(**{**fields, **change}))
        assert swarm.watcher.step(0.0) == 1  # the seed's verdict all the same
        swarm.watcher._beat(None)
        facts = json.loads((swarm.paths.heartbeats / "watcher.json").read_text())["facts"]
        assert message in facts["faults"][0]
