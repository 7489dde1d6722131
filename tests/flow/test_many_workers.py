"""Several workers on several problems: everyone's best wins everywhere, and nothing is done twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from swarm import board as boards
from swarm.layout import WorkBranch
from swarm.planner.decisions import Assign, Reassign
from tests.support import ScriptedAgent, Swarm, make_root, params_of, solution

PROBLEMS = ("attention", "norm", "rope", "softmax")
CREW = ("w1", "w2", "w3")


def test_every_problem_ends_at_its_best_point(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path), workers=CREW) as swarm:
        swarm.start(*PROBLEMS)
        swarm.until(swarm.is_quiet)
        for problem in PROBLEMS:
            assert params_of(swarm.champion(problem)) == {"BLOCK": 4, "UNROLL": 3}
            trees = Counter(v.tree for v in swarm.ledger.verdicts(problem))
            assert len(trees) == 9
            assert set(trees.values()) == {1}
        branches = [branch.work for branch in swarm.hub.branches()]
        assert {branch.problem for branch in branches} == set(PROBLEMS)
        for worker in CREW:  # numbered over all problems, and none is ever deleted
            numbers = sorted(branch.number for branch in branches if branch.worker == worker)
            assert numbers == list(range(1, len(numbers) + 1))


def test_every_problem_is_visited_before_any_is_visited_twice(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path, stall_verdicts=3), workers=("w1", "w2")) as swarm:
        swarm.start(*PROBLEMS)
        visits: list[str] = []
        while len(visits) < 4:
            visits += [d.problem for d in swarm.round() if isinstance(d, Assign | Reassign)]
        assert sorted(visits) == sorted(PROBLEMS)


def test_a_loser_of_the_race_is_compared_with_the_new_champion(tmp_path: Path) -> None:
    """Two lines beat the seed; the second was FASTER than it too, and must still beat the winner."""
    better, best = solution(BLOCK=2, UNROLL=1), solution(BLOCK=4, UNROLL=1)
    scripts = iter([[("Double the block", better)], [("Quadruple the block", best)]])
    root = make_root(tmp_path, settle_verdicts=1)
    with Swarm(root, workers=("w1", "w2"), agent=lambda: ScriptedAgent(next(scripts))) as swarm:
        swarm.start("rope")
        swarm.until(swarm.is_quiet)
        champion = swarm.hub.commit(swarm.hub.champions()["rope"])
        assert params_of(swarm.champion("rope"))["BLOCK"] == 4
        assert champion.message.trailers["Worker"] == "w2"
        pairs = {c.id.rsplit("-", 1)[0] for c in swarm.ledger.comparisons("rope")}
        assert len(pairs) <= 2


def test_a_worker_that_says_goodbye_keeps_its_branch_and_goes_on_from_it(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path)) as swarm:
        swarm.start("rope")
        swarm.until(lambda: len(swarm.hub.commits("rope")) > 1)
        [worker] = swarm.crew
        swarm.paths.stop.write_text("{}")
        worker.run()
        for _ in range(5):
            swarm.watcher.step(0.0)
            swarm.planner.step()
        board = boards.read(swarm.paths.board)
        assert board is not None
        assert board.assignment("w1") == WorkBranch("rope", "w1", 1)
        swarm.paths.stop.unlink()
        swarm.until(swarm.is_quiet)
        assert {branch.work for branch in swarm.hub.branches()} == {WorkBranch("rope", "w1", 1)}
