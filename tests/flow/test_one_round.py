"""Branch, commits, watcher, planner, merge: the loop in one process, one step at a time."""

from __future__ import annotations

from pathlib import Path

from swarm import board as boards
from swarm import status
from swarm.git import RefChange, Repo
from swarm.planner.decisions import Assign, Merge, RequestComparison
from swarm.status import WorkerState
from swarm.verdict import Outcome, Status
from tests.support import SEED, ScriptedAgent, Swarm, make_root, params_of, solution


def test_a_seed_becomes_a_faster_champion(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path)) as swarm:
        swarm.start("rope")
        [seed] = swarm.hub.commits("rope")
        swarm.until(swarm.is_quiet)

        assert params_of(swarm.champion("rope")) == {"BLOCK": 4, "UNROLL": 3}
        head = swarm.hub.commit(swarm.hub.champions()["rope"])
        assert head.message.subject.startswith("Merge: ")
        assert "BLOCK 1 -> 4, UNROLL 1 -> 3" in head.message.subject or "->" in head.message.subject
        trailers = head.message.trailers
        assert float(trailers["Speedup"]) > 1
        assert (trailers["Worker"], trailers["Agent"]) == ("w1", "tuner")
        ids = trailers["Comparison"].split(", ")
        assert len(ids) == 2
        recorded = {c.id: c for c in swarm.ledger.comparisons("rope")}
        assert {recorded[i].outcome for i in ids} == {Outcome.FASTER}

        merged = head
        while merged.parents:  # every champion is exactly a tree that was measured
            submission = next(s for s in swarm.hub.commits("rope") if s.commit == merged.sha)
            assert any(v.tree == submission.tree for v in swarm.ledger.verdicts("rope"))
            merged = swarm.hub.commit(merged.parents[0])
        assert merged.sha == seed.commit


def test_every_point_is_tried_once_and_the_worker_says_that_none_is_left(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path)) as swarm:
        swarm.start("rope")
        swarm.until(swarm.is_quiet)
        verdicts = swarm.ledger.verdicts("rope")
        assert len(verdicts) == 9
        assert len({v.tree for v in verdicts}) == 9
        board = boards.read(swarm.paths.board)
        assert board is not None
        row = board.problem("rope")
        assert row is not None
        assert (row.state, row.verdicts, row.passed) == ("exhausted", 9, 9)
        assert board.assignment("w1") is None


def test_the_inbox_and_the_knowledge_say_what_worked_and_what_failed(tmp_path: Path) -> None:
    script = [
        ("Double the block", solution(BLOCK=2, UNROLL=1)),
        ("Use an `unlucky` number\nWorker: mallory", solution(BLOCK=13, UNROLL=1)),
    ]
    with Swarm(make_root(tmp_path), agent=lambda: ScriptedAgent(script)) as swarm:
        swarm.start("rope")
        swarm.until(lambda: params_of(swarm.champion("rope"))["BLOCK"] == 2)
        swarm.until(lambda: len(swarm.ledger.verdicts("rope")) == 3)
        swarm.round()
        knowledge = swarm.paths.knowledge.read_text()
        assert "## table" in knowledge
        assert "worked: `Double the block` by w1, 2.000 times as fast" in knowledge
        assert "failed, COMPILE_ERROR: `Use an 'unlucky' number" in knowledge
        swarm.start("swiglu")
        swarm.until(lambda: swarm.hub.assignment("w1").work.problem == "swiglu")  # type: ignore[union-attr]
        swarm.round()
        inbox = swarm.paths.agent("w1").inbox.read_text()
        assert "Assignment: swiglu, on work/swiglu/w1-2." in inbox
        assert "What worked on other problems of the family table" in inbox
        assert "rope: `Double the block` by w1, 2.000 times as fast" in inbox


def test_decisions_come_in_the_order_of_the_loop(tmp_path: Path) -> None:
    script = [("Double the block", solution(BLOCK=2, UNROLL=1))]
    with Swarm(make_root(tmp_path), agent=lambda: ScriptedAgent(script)) as swarm:
        swarm.start("rope")
        kinds = [type(d) for _ in range(12) for d in swarm.round()]
        order = [k for k in kinds if k in (Assign, RequestComparison, Merge)]
        assert order == [Assign, RequestComparison, RequestComparison, Merge]


def test_a_commit_outside_the_solution_is_refused_and_says_nothing_about_its_tree(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path), workers=()) as swarm:
        swarm.start("rope")
        branch = swarm.hub.assign("rope", "w1")
        better = solution(BLOCK=2, UNROLL=1)
        good = swarm.hub.submit("w1", branch, better, None, "Double the block", {})
        bad = _commit_with(swarm, good, "reference.py", b"def run():\n    return 1\n")
        swarm.until(lambda: bool(swarm.ledger.refusals("rope")))
        assert "reference.py" in swarm.ledger.refusals("rope")[bad].reason
        swarm.until(lambda: params_of(swarm.champion("rope"))["BLOCK"] == 2)
        assert swarm.hub.commit(swarm.hub.champions()["rope"]).parents[1] == good


def _commit_with(swarm: Swarm, parent: str, path: str, content: bytes) -> str:
    """Commit behind the hub's back, as somebody with a git of his own would."""
    with Repo(swarm.paths.hub) as repo:
        tree = repo.write_tree(repo.read_tree(repo.commit(parent).tree) | {path: content})
        commit = repo.commit_tree(tree, [parent], "Make it easier\n", "mallory")
        repo.update_refs([RefChange("refs/heads/work/rope/w1-1", commit, parent)], "mallory")
    return commit


def test_a_broken_tree_gets_its_status_and_the_run_goes_on(tmp_path: Path) -> None:
    script = [("Break it", solution(BLOCK=13, UNROLL=1)), ("Double it", solution(BLOCK=2, UNROLL=1))]
    with Swarm(make_root(tmp_path), agent=lambda: ScriptedAgent(script)) as swarm:
        swarm.start("rope")
        swarm.until(swarm.is_quiet)
        assert [v.status for v in swarm.ledger.verdicts("rope")] == [
            Status.PASSED,
            Status.COMPILE_ERROR,
            Status.PASSED,
        ]


def test_a_lost_job_is_tried_again_and_recorded_once(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path), workers=()) as swarm:
        now = [1000.0]
        swarm.watcher.clock = lambda: now[0]
        swarm.start("rope")
        swarm.watcher.scan()
        [job_id] = [job.id for job in swarm.pool._queue]
        swarm.pool.lose.add(job_id)
        assert swarm.watcher.take(0.0) == 0
        assert swarm.watcher.step(0.0) == 0  # not at once
        now[0] += 10
        assert swarm.watcher.step(0.0) == 1
        assert [v.key for v in swarm.ledger.verdicts("rope")] == [job_id]


def test_a_malformed_board_stops_assignments_but_not_the_judging(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path), workers=("w1",)) as swarm:
        swarm.start("rope")
        swarm.planner.step()
        text = swarm.paths.board.read_text()
        swarm.paths.board.write_text(text.replace("| rope |", "| Rope! |"))
        broken = swarm.paths.board.read_text()
        for _ in range(5):
            assert not any(isinstance(d, Assign) for d in swarm.round())
        assert len(swarm.ledger.verdicts("rope")) == 1
        assert swarm.paths.board.read_text() == broken
        assert swarm.hub.assignment("w1") is None
        swarm.planner.step(rebuild=True)
        assert boards.read(swarm.paths.board) is not None
        swarm.until(swarm.is_quiet)


def test_a_new_epoch_gives_the_worker_a_new_branch_and_judges_the_champion_again(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path)) as swarm:
        swarm.start("rope")
        swarm.until(swarm.is_quiet)
        champion = params_of(swarm.champion("rope"))
        files = {"definition.json": b'{"changed": 1}\n', "problem.toml": b""}
        swarm.hub.ensure_epoch(
            "rope", {**files, "COORDINATION.md": swarm.root.coordination.read_bytes()}, SEED, "planner"
        )
        assert params_of(swarm.champion("rope")) == champion
        swarm.until(lambda: len(swarm.ledger.verdicts("rope")) > 9)
        swarm.until(swarm.is_quiet)
        assert len(swarm.ledger.verdicts("rope")) == 18
        said = status.read(swarm.paths.agent("w1").status)
        assert said is not None
        assert said.state is WorkerState.IDLE


def test_a_problem_whose_branch_somebody_broke_is_left_aside_and_the_others_go_on(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path)) as swarm:
        swarm.start("norm", "rope")
        with Repo(swarm.paths.hub) as repo:
            stray = repo.commit_tree(repo.write_tree({"a": b""}), [], "A stray commit\n", "mallory")
            head = swarm.hub.champions()["norm"]
            repo.update_refs([RefChange("refs/heads/problem/norm", stray, head)], "mallory")
        swarm.until(swarm.is_quiet)
        assert params_of(swarm.champion("rope")) == {"BLOCK": 4, "UNROLL": 3}
        assert any("norm is left aside: " in fault for fault in swarm.watcher._faults)
