"""`swarm run` for real: kernels compiled, run and timed, roles killed, the run interrupted and continued."""

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

import psutil
import pytest

from swarm.cli import main as cli
from swarm.layout import RunPaths, RunRoot
from swarm.role import beats
from tests.problem_files import write_double
from tests.support import REPOSITORY

TOML = '[run]\nname = "t"\nworkers = 1\n[budget]\nbaseline_s = 5\n'


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRoot:
    """A run root with one small problem, as the current folder."""
    assert cli.main(["init", str(tmp_path / "root")]) == 0
    root = RunRoot(tmp_path / "root")
    root.config.write_text(TOML)
    write_double(root.problem("double"))
    monkeypatch.chdir(root.path)
    return root


@contextmanager
def swarm_run(*options: str) -> Iterator[subprocess.Popen[str]]:
    """Start `swarm run`; when the block is left, whatever of it still lives is a failure."""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "swarm.cli.main", "run", *options]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        try:
            yield run
        finally:
            run.kill()


def wait_for(condition: Callable[[], bool], timeout_s: float = 90.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.1)


def family(run: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(run.pid).children(recursive=True)


def gone(processes: list[psutil.Process]) -> bool:
    return not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


def verdicts(paths: RunPaths) -> dict[str, float]:
    """Return verdict file -> when it was written."""
    return {path.name: path.stat().st_mtime for path in paths.results.glob("verdicts/*/*.json")}


@pytest.mark.timeout(300)
def test_a_run_finds_a_faster_kernel_and_ends_by_itself(
    root: RunRoot, capsys: pytest.CaptureFixture[str]
) -> None:
    root.config.write_text(TOML.replace("baseline_s = 5", "baseline_s = 60"))  # time for torch.compile
    write_double(root.problem("broken"))
    (root.problem("broken") / "workload.jsonl").write_text("{}\n")
    with swarm_run("--minutes", "2", "--json") as run:
        out, err = run.communicate(timeout=240)
    assert run.returncode == 1, err
    assert "left out: broken/workload.jsonl:1" in err
    board = json.loads(out)
    [row] = board["problems"]
    assert row["name"] == "double"
    assert row["speedup_over_seed"] > 1.5
    assert row["verdicts"]["PASSED"] >= 2
    assert row["t_b_us"] > 0 and row["t_sol_us"] > 0
    paths = root.run("t")
    assert json.loads(paths.scoreboard_json.read_bytes()) == board
    log = subprocess.run(
        ["git", "--git-dir", str(paths.hub), "log", "--format=%B", "problem/double"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for trailer in ("Speedup: ", "SOL-Score: ", "Comparison: ", "Worker: w1", "Agent: tuner"):
        assert trailer in log
    assert cli.main(["log", "double"]) == 0
    shown = capsys.readouterr().out
    for said in ("Speedup: ", "SOL-Score: ", "Comparison: ", "w1 tuner"):
        assert said in shown


@pytest.mark.timeout(300)
def test_interrupt_ends_within_5_s_and_the_next_run_continues(root: RunRoot) -> None:
    paths = root.run("t")
    with swarm_run("--minutes", "5") as run:
        wait_for(lambda: len(verdicts(paths)) >= 2)
        processes = family(run)
        run.send_signal(signal.SIGINT)
        assert run.wait(5) == 130
        wait_for(lambda: gone(processes), 2)
    before = verdicts(paths)
    with swarm_run("--minutes", "5") as run:
        wait_for(lambda: len(verdicts(paths)) > len(before))
        assert cli.main(["stop"]) == 0
        assert run.wait(10) == 0
    after = verdicts(paths)
    assert {name: after[name] for name in before} == before, "a verdict was lost or made again"


@pytest.mark.timeout(300)
def test_a_killed_run_leaves_no_orphans(root: RunRoot) -> None:
    with swarm_run("--minutes", "5") as run:
        wait_for(lambda: {"watcher", "planner", "worker-w1"} <= set(beats(root.run("t"))))
        processes = family(run)
        run.kill()
        run.wait(5)
        wait_for(lambda: gone(processes), 10)


@pytest.mark.timeout(300)
def test_a_killed_role_is_replaced_and_the_run_goes_on(root: RunRoot) -> None:
    paths = root.run("t")
    with swarm_run("--minutes", "5") as run:
        wait_for(lambda: len(verdicts(paths)) >= 1)
        watcher = beats(paths)["watcher"].pid
        os.kill(watcher, signal.SIGKILL)
        count = len(verdicts(paths))
        wait_for(lambda: len(verdicts(paths)) > count and beats(paths)["watcher"].pid != watcher)
        run.send_signal(signal.SIGINT)
        assert run.wait(5) == 130
        assert run.stderr is not None
        assert "was killed by SIGKILL; started again" in run.stderr.read()


def test_two_runs_of_one_name_exclude_each_other(root: RunRoot) -> None:
    with swarm_run("--minutes", "5") as run:
        wait_for(lambda: root.run("t").lock("run").exists())
        with swarm_run("--minutes", "5") as second:
            _, err = second.communicate(timeout=30)
        assert second.returncode == 1
        assert f"pid {run.pid}" in err or str(run.pid) in err
        run.send_signal(signal.SIGINT)
        assert run.wait(10) == 130


@pytest.mark.timeout(300)
def test_a_run_that_still_prepares_is_stopped_too(root: RunRoot) -> None:
    paths = root.run("t")
    with swarm_run("--minutes", "5") as run:
        wait_for(lambda: (paths.hub / "refs/heads/problem/double").exists())
        processes = family(run)
        assert cli.main(["stop"]) == 0
        assert run.wait(10) == 130
        wait_for(lambda: gone(processes), 10)
    assert not paths.stop.exists()
