"""The planner's loop around the policy: what it reads, what it writes, and what it leaves alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swarm import board as boards
from swarm.errors import Refused
from swarm.hub import Hub
from swarm.knowledge import family_of
from swarm.planner.decisions import Assign, RequestComparison, Retire, Wait
from swarm.requests import requests
from swarm.role import Stop, beat, beats, worker_role
from tests.support import ScriptedAgent, Swarm, make_root, params_of, solution

DOUBLE = [("Double the block", solution(BLOCK=2, UNROLL=1))]


def scripted() -> ScriptedAgent:
    return ScriptedAgent(DOUBLE)


def change_protocol(swarm: Swarm, old: str, new: str) -> None:
    text = swarm.root.coordination.read_text()
    assert old in text
    swarm.root.coordination.write_text(text.replace(old, new))


def test_a_request_is_withdrawn_when_it_has_its_record_or_its_champion_is_gone(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path), agent=scripted) as swarm:
        swarm.start("rope")
        swarm.until(lambda: bool(requests(swarm.paths)[0]))
        [[request], _] = requests(swarm.paths)
        swarm.until(lambda: request not in requests(swarm.paths)[0])
        assert [c.id for c in swarm.ledger.comparisons("rope")] == [request.id]
        swarm.until(lambda: bool(requests(swarm.paths)[0]))
        files = {**swarm.problem_files("rope"), "reference.py": b"def run():\n    return 2\n"}
        swarm.hub.ensure_epoch("rope", files, {}, "planner")
        swarm.planner.step()
        assert requests(swarm.paths)[0] == []


def test_numbers_of_the_planner_block_apply_at_once(tmp_path: Path) -> None:
    root = make_root(tmp_path, max_workers_per_problem=1)
    with Swarm(root, workers=("w1", "w2"), agent=scripted) as swarm:
        swarm.start("rope")
        for _ in range(2):
            swarm.round()
        assert len(swarm.hub.branches()) == 1
        change_protocol(swarm, "max_workers_per_problem = 1", "max_workers_per_problem = 2")
        swarm.planner.step()
        assert len(swarm.hub.branches()) == 2


def test_numbers_of_the_tests_block_apply_with_the_next_start(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    with Swarm(root, agent=scripted) as swarm:
        change_protocol(swarm, "confirmations = 1", "confirmations = 0")
        swarm.start("rope")
        swarm.until(lambda: params_of(swarm.champion("rope"))["BLOCK"] == 2)
        assert len(swarm.ledger.comparisons("rope")) == 1


def test_columns_of_the_board_block_apply_at_once(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path), workers=()) as swarm:
        change_protocol(swarm, ', "merges", "workers"]', ', "merges"]')
        swarm.start("rope")
        swarm.planner.step()
        assert "| problem | state | champion | time_us | t_sol_us | verdicts | passed | merges |\n" in (
            swarm.paths.board.read_text()
        )


def test_a_protocol_that_breaks_while_it_runs_stays_as_it_was(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path), agent=scripted) as swarm:
        swarm.start("rope")
        swarm.round()
        change_protocol(swarm, "exploration = ", "explosion = ")
        swarm.until(swarm.is_quiet)
        assert params_of(swarm.champion("rope"))["BLOCK"] == 2


def test_only_the_chosen_problems_take_part(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path), agent=scripted) as swarm:
        swarm.start("rope", "norm")
        swarm.planner.problems = ["rope"]
        swarm.planner.__post_init__()
        swarm.until(swarm.is_quiet)
        assert {branch.work.problem for branch in swarm.hub.branches()} == {"rope"}


def test_a_second_planner_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from swarm.locks import held

    monkeypatch.setattr("swarm.plan.LOCK_TIMEOUT_S", 0.1)
    with (
        Swarm(make_root(tmp_path), workers=()) as swarm,
        held(swarm.paths.lock("planner"), timeout_s=1, purpose="plan"),
        pytest.raises(Refused, match="planner"),
    ):
        swarm.planner.run(Stop(swarm.paths.stop))


def test_a_silent_worker_gets_nothing_new_and_in_the_end_loses_its_place(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path), agent=scripted) as swarm:
        now = [1e9]
        swarm.planner.clock = lambda: now[0]
        swarm.crew[0].clock = lambda: now[0]
        swarm.start("rope")
        swarm.crew[0].step()
        now[0] += 31
        assert [type(d) for d in swarm.planner.step()] == [Wait]
        now[0] += 2
        swarm.crew[0].step()
        assert [type(d) for d in swarm.planner.step()] == [Assign]
        now[0] += 119
        assert not any(isinstance(d, Retire) for d in swarm.planner.step())
        now[0] += 2
        assert any(isinstance(d, Retire) for d in swarm.planner.step())
        board = boards.read(swarm.paths.board)
        assert board is not None
        assert board.assignment("w1") is None


def test_a_dead_worker_is_not_up_however_fresh_its_last_beat(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path)) as swarm:
        swarm.start("rope")
        swarm.crew[0].step()
        path = swarm.paths.heartbeats / "worker-w1.json"
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, "start": "another life"}))
        assert not any(isinstance(d, Assign) for d in swarm.planner.step())


def test_a_refused_candidate_is_not_compared(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path), workers=()) as swarm:
        swarm.start("rope")
        branch = swarm.hub.assign("rope", "w1")
        commit = swarm.hub.submit("w1", branch, solution(BLOCK=2, UNROLL=1), None, "Double", {})
        swarm.watcher.step(0.0)
        swarm.watcher.step(0.0)
        swarm.ledger.refuse("rope", commit, "it looked odd")
        assert not any(isinstance(d, RequestComparison) for d in swarm.planner.step())


def test_what_is_unchanged_is_not_written_again(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path), agent=scripted) as swarm:
        swarm.start("rope")
        swarm.until(swarm.is_quiet)
        swarm.round()
        inbox = swarm.paths.agent("w1").inbox
        before = [path.stat().st_ino for path in (swarm.paths.board, swarm.paths.knowledge, inbox)]
        for _ in range(3):
            swarm.round()
        assert [path.stat().st_ino for path in (swarm.paths.board, swarm.paths.knowledge, inbox)] == before


@pytest.mark.parametrize(
    ("toml", "family"),
    [
        (b'family = "norm"', "norm"),
        (b"family = 3", "other"),
        (b"\xff", "other"),
        (b"x", "other"),
        (None, "other"),
    ],
)
def test_a_problem_without_a_family_is_filed_under_other(toml: bytes | None, family: str) -> None:
    assert family_of(toml) == family


def test_a_beat_says_whose_it_is_and_garbage_is_no_sign_of_life(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path), workers=()) as swarm:
        beat(swarm.paths, worker_role("w1"), 5.0, state="working")
        (swarm.paths.heartbeats / "worker-w2.json").write_text("{}")
        (swarm.paths.heartbeats / "worker-w3.json").write_text("[")
        found = beats(swarm.paths)
        assert set(found) == {"worker-w1"}
        assert found["worker-w1"].is_alive
        assert found["worker-w1"].facts == {"state": "working"}


def test_the_loop_runs_until_it_is_told_to_stop(tmp_path: Path) -> None:
    import threading

    root = make_root(tmp_path)
    with Swarm(root, workers=()) as swarm:
        swarm.start("rope")

        def run() -> None:
            with Swarm(root, workers=()) as own:
                own.planner.run(Stop(own.paths.stop))

        thread = threading.Thread(target=run)
        thread.start()
        while not swarm.paths.board.exists():
            assert thread.is_alive()
        swarm.paths.stop.write_text("{}")
        thread.join(5)
        assert not thread.is_alive()
        assert isinstance(swarm.hub, Hub)
