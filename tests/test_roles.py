"""Roles as processes of their own, and the commands that talk to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swarm.cli import main as cli
from swarm.cli import state
from swarm.device import Device
from swarm.layout import RunPaths
from swarm.locks import held
from swarm.role import beat, beats
from tests.support import REPOSITORY, Swarm, make_root


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    """A run called test with one problem and no role, as the current folder."""
    with Swarm(make_root(tmp_path)) as swarm:
        swarm.start("rope")
        paths = swarm.paths
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SWARM_RUN", "test")
    return paths


@contextmanager
def role(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "swarm.cli.main", *arguments]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


def test_planner_and_worker_meet_on_the_board(paths: RunPaths, capsys: pytest.CaptureFixture[str]) -> None:
    with role("plan"), role("worker", "w1"):
        wait_for(lambda: any(paths.worktrees.glob("w1/solution/kernel.cpp")))
        assert cli.main(["status", "--json"]) == 0
        now = json.loads(capsys.readouterr().out)
        assert [problem["problem"] for problem in now["problems"]] == ["rope"]
        assert now["workers"][0]["branch"] == "work/rope/w1-1"
        assert {r["role"] for r in now["roles"] if r["alive"]} == {"planner", "worker-w1"}
        assert cli.main(["status"]) == 0
        assert "work/rope/w1-1" in capsys.readouterr().out


def test_status_shows_what_each_device_does(paths: RunPaths, capsys: pytest.CaptureFixture[str]) -> None:
    gpus = tuple(Device("cuda", "nvidia-h200", f"GPU-{n}", (n,), "sm_90a") for n in (1, 2))
    now = time.time()
    state.save(paths, state.RunState("tuner", "cuda", (), ("rope",), now, now + 60, "nvidia-h200", gpus))
    assert state.load(paths).devices == gpus
    assert cli.main(["status", "--json"]) == 0
    idle = json.loads(capsys.readouterr().out)["devices"]
    assert [(one["device"], one["job"], one["done"]) for one in idle] == [
        ("GPU-1", None, 0),
        ("GPU-2", None, 0),
    ]
    said = [{"uuid": "GPU-1", "job": None, "done": 4, "busy_s": 8.0}]
    said += [{"uuid": "GPU-2", "job": "e5" * 16, "done": 3, "busy_s": 7.25}]
    beat(paths, "watcher", now, devices=said)
    assert cli.main(["status", "--json"]) == 0
    one, two = json.loads(capsys.readouterr().out)["devices"]
    assert one == {"device": "GPU-1", "model": "nvidia-h200", "job": None, "done": 4, "busy_s": 8.0}
    assert (two["job"], two["busy_s"]) == ("e5" * 16, 7.25)
    assert cli.main(["status"]) == 0
    assert "GPU-2   nvidia-h200  e5e5e5e5e5" in capsys.readouterr().out


def test_sigterm_ends_a_role_with_exit_code_0(paths: RunPaths) -> None:
    with role("worker", "w1") as process:
        wait_for(lambda: "worker-w1" in beats(paths))
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_stop_ends_every_role_and_leaves_no_stop_file(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    with role("plan") as planner, role("worker", "w1") as worker:
        wait_for(lambda: {"planner", "worker-w1"} <= set(beats(paths)))
        assert cli.main(["stop"]) == 0
        assert (planner.wait(10), worker.wait(10)) == (0, 0)
    assert not paths.stop.exists()
    assert cli.main(["stop"]) == 0
    assert "nothing of run 'test' is running" in capsys.readouterr().out


def test_status_says_whether_a_run_prepares_runs_or_is_over(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    def said() -> str:
        capsys.readouterr()
        assert cli.main(["status"]) == 0
        return capsys.readouterr().out.splitlines()[0]

    assert said().endswith("; not running: `swarm run` continues it")
    with held(paths.lock("run"), timeout_s=1, purpose="swarm run"):
        assert "; preparing: epochs, peaks and baselines come first" in said()
        beat(paths, "planner", time.time())
        assert said().endswith(" on the device")
    beat(paths, "planner", time.time())
    assert said().endswith(" on the device"), "a role that runs alone is at work, too"


def test_submit_commits_what_lies_in_the_worktree(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with role("plan"), role("worker", "w1"):
        kernel = paths.worktree("w1") / "solution" / "kernel.cpp"
        wait_for(kernel.exists)
        kernel.write_text('#include "problem.h"\n// by hand\n')
        monkeypatch.chdir(kernel.parent)
        assert cli.main(["submit", "-m", "Write it by hand", "--no-wait", "--json"]) == 0
        commit = json.loads(capsys.readouterr().out)["commit"]
        assert cli.main(["log", "rope", "--json"]) == 0
        entries = {entry["commit"]: entry for entry in json.loads(capsys.readouterr().out)}
        assert entries[commit]["subject"] == "Write it by hand"
        assert entries[commit]["branch"] == "refs/heads/work/rope/w1-1"
        (kernel.parent / "evil.cpp").symlink_to("/etc/passwd")
        assert cli.main(["submit", "-m", "Link to something"]) == 1
        assert "evil.cpp" in capsys.readouterr().err


def test_submit_outside_a_worktree_says_where_to_go(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["submit", "-m", "x"]) == 1
    assert "is not in a worktree; go to workspace/<run>/worktrees/<worker>" in capsys.readouterr().err


def test_rebuild_mends_a_malformed_board(paths: RunPaths) -> None:
    paths.board.write_text("| problem | nonsense\n")
    with role("plan", "--rebuild") as process:
        assert process.wait(20) == 0
    assert "| rope |" in paths.board.read_text()


def test_a_role_of_a_run_that_is_not_there_says_what_to_type(paths: RunPaths) -> None:
    with role("plan", "--run", "other") as process:
        assert process.wait(20) == 1
        assert process.stderr is not None
        assert "run 'other' has no hub; type: swarm run" in process.stderr.read()
