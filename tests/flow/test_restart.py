"""Every role is thrown away and opened again between every two steps: nothing lives in memory only."""

from __future__ import annotations

from pathlib import Path

from swarm import board as boards
from tests.support import Swarm, TablePool, make_root, params_of


def test_a_run_restarted_between_every_two_steps_ends_the_same(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    with Swarm(root, workers=()) as swarm:
        swarm.start("norm", "rope")
        paths = swarm.paths
    for number in range(400):
        with Swarm(root, pool=TablePool(), workers=("w1", "w2")) as swarm:
            if swarm.is_quiet():
                break
            steps = (
                swarm.crew[0].step,
                lambda s=swarm: s.watcher.step(0.0),
                swarm.planner.step,
                swarm.crew[1].step,
            )
            steps[number % 4]()
    else:
        raise AssertionError(f"not finished:\n{paths.board.read_text()}")
    with Swarm(root, workers=()) as swarm:
        for problem in ("norm", "rope"):
            assert params_of(swarm.champion(problem)) == {"BLOCK": 4, "UNROLL": 3}
            assert len(swarm.ledger.verdicts(problem)) == 9
            assert not swarm.ledger.broken(problem)


def test_without_its_board_a_run_goes_on(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path)) as swarm:
        swarm.start("rope")
        swarm.until(lambda: len(swarm.ledger.verdicts("rope")) >= 4)
        before = swarm.hub.assignment("w1")
        swarm.paths.board.unlink()
        swarm.planner.step()
        board = boards.read(swarm.paths.board)
        assert board is not None
        assert before is not None
        assert board.assignment("w1") == before.work
        swarm.until(swarm.is_quiet)


def test_an_assignment_whose_board_was_never_written_is_found_in_git(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path)) as swarm:
        swarm.start("rope")
        swarm.round()
        assigned = swarm.hub.assign("rope", "w1")  # and then the planner was killed
        swarm.planner.step()
        board = boards.read(swarm.paths.board)
        assert board is not None
        assert board.assignment("w1") == assigned
        assert swarm.hub.assignment("w1").work == assigned  # type: ignore[union-attr]


def test_a_workspace_that_lost_all_but_the_hub_goes_on(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    with Swarm(root) as swarm:
        swarm.start("rope")
        swarm.until(lambda: len(swarm.ledger.verdicts("rope")) >= 4)
        swarm.until(lambda: bool(swarm.ledger.comparisons("rope")))
        paths = swarm.paths
    for path in sorted(paths.workspace.rglob("*"), reverse=True):
        if paths.hub not in (path, *path.parents):
            path.rmdir() if path.is_dir() else path.unlink()
    with Swarm(root) as swarm:
        swarm.until(swarm.is_quiet)
        assert params_of(swarm.champion("rope")) == {"BLOCK": 4, "UNROLL": 3}
        assert len(swarm.ledger.verdicts("rope")) == 9
