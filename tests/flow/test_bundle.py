"""Away and home again: what is pending leaves as a file, a bare host judges it, and the planner merges.

Everything is real but the distance: git, the CPU judge in processes of their own, and on the other side an
interpreter that finds nothing but torch, cuda-bindings, click, pydantic and what these need.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest

from swarm.cli import main as cli
from swarm.device import cpu_device
from swarm.hub import Hub
from swarm.layout import RunPaths, RunRoot
from swarm.ledger import Ledger
from swarm.plan import Planner
from swarm.planner.decisions import Decision, Merge, RequestComparison
from swarm.problem import load_problem
from swarm.requests import requests
from swarm.solution import with_params
from swarm.verdict import Outcome, Status
from tests.problem_files import write_double
from tests.support import REPOSITORY

BARE = ("torch", "cuda-bindings", "click", "pydantic")
BLOCKER = """
import sys
class Bare:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {blocked!r} else self.finder.find_spec(name, path, target)
sys.meta_path[:] = map(Bare, sys.meta_path)
"""
TOML = '[run]\nname = "t"\n[budget]\nbaseline_s = 5\n'


def closure(names: tuple[str, ...]) -> set[str]:
    """Return the distributions that these need, themselves included, by canonical name."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        if name not in found:
            found.add(name)
            todo += [re.split(r"[^A-Za-z0-9_.-]", one)[0] for one in needs if "extra ==" not in one]
    return found


def blocked() -> set[str]:
    """Return the top-level modules of every distribution here that a bare host does not have."""
    has = closure(BARE)
    owners = metadata.packages_distributions()
    canonical = {
        module: {re.sub(r"[-_.]+", "-", d).lower() for d in dists} for module, dists in owners.items()
    }
    return {module for module, dists in canonical.items() if not dists & has} - {"swarm", "tests"}


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of an interpreter, and of all it starts, that has only what a bare host has."""
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BLOCKER.format(blocked=blocked()))
    locks = tmp_path / "locks"
    path = os.pathsep.join([str(folder), str(REPOSITORY)])
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": path, "SWARM_DEVICE_LOCKS": str(locks)}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRoot:
    """A run with a seed and three attempts at one problem, of which one does not compile."""
    assert cli.main(["init", str(tmp_path / "root")]) == 0
    root = RunRoot(tmp_path / "root")
    root.config.write_text(TOML)
    write_double(root.problem("double"))
    monkeypatch.chdir(root.path)
    with Hub(root.run("t")) as hub:
        hub.ensure()
        problem = load_problem(root.problem("double"))
        files = {**problem.files, root.coordination.name: root.coordination.read_bytes()}
        seed = problem.seeds["cpp"]
        hub.ensure_epoch("double", files, seed, "planner")
        branch = hub.assign("double", "w1")
        for repeat in (8, 2, 1):
            hub.submit("w1", branch, with_params(seed, {"REPEAT": repeat}), None, f"Repeat {repeat}", {})
        broken = {**seed, "kernel.cpp": b'#include "problem.h"\nthis is not C++\n'}
        hub.submit("w1", branch, broken, None, "Break it", {})
    return root


def bench(bundle: Path, out: Path, bare: dict[str, str], **options: object) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-P",
        "-m",
        "swarm.cli.main",
        "bench",
        "--bundle",
        str(bundle),
        "--out",
        str(out),
    ]
    return subprocess.Popen(
        [*command, "--json"],
        env=bare,
        cwd=bundle.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )


def records(out: Path) -> dict[str, bytes]:
    found = [*out.glob("results/t/verdicts/*/*.json"), *out.glob("results/t/comparisons/*/*.json")]
    return {path.name: path.read_bytes() for path in found}


def plan(root: RunRoot, paths: RunPaths, steps: int = 6) -> list[Decision]:
    """Let the planner at home decide until nothing comes any more."""
    made: list[Decision] = []
    with Hub(paths) as hub, Ledger(paths) as ledger:
        planner = Planner(paths, hub, ledger, cpu_device().model, root.coordination, lambda *_: None)
        for _ in range(steps):
            made += planner.step()
    return made


@pytest.mark.timeout(600)
def test_what_leaves_as_a_file_comes_home_as_a_merge(
    root: RunRoot, bare: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away = tmp_path / "away"
    away.mkdir()
    bundle, out, paths = away / "b.zip", away / "out", root.run("t")
    assert cli.main(["pending", "--json"]) == 0
    [listed] = json.loads(capsys.readouterr().out)["problems"]
    assert [one["branch"] for one in listed["verdicts"]] == ["", "w1-1", "w1-1", "w1-1", "w1-1"]
    assert listed["baseline"] and not listed["comparisons"]
    assert cli.main(["pending", "--bundle", str(bundle)]) == 0
    assert "5 verdicts and 0 comparisons wanted, on any device" in capsys.readouterr().out

    first = bench(bundle, out, bare)
    deadline = time.monotonic() + 200
    while len(records(out)) < 2:  # killed in the middle: what is on file stays, and is not made again
        assert time.monotonic() < deadline and first.poll() is None, first.communicate()
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    before = records(out)

    again = bench(bundle, out, bare)
    said, err = again.communicate(timeout=400)
    assert again.returncode == 0, err
    assert "No module named" not in err
    lines = re.findall(r"^\[\d+/\d+\] double [0-9a-f]{10} ([A-Z_]+)", err, re.MULTILINE)
    assert {"PASSED", "COMPILE_ERROR", "FASTER"} >= set(lines) >= {"PASSED", "FASTER"}
    made = records(out)
    assert {name: made[name] for name in before} == before
    [row] = json.loads(said)["problems"]
    assert (row["verdicts"], row["passed"], row["left"]) == (5, 4, 0)
    assert row["comparisons"] >= 2 and row["speedup"] > 1.5

    capsys.readouterr()
    assert cli.main(["results", "import", str(out), "--json"]) == 0
    taken = json.loads(capsys.readouterr().out)
    assert (taken["verdicts"], taken["comparisons"], taken["known"]) == (5, row["comparisons"], 0)
    assert (taken["baselines"], taken["faults"], taken["renumbered"]) == (1, [], [])
    assert cli.main(["results", "import", str(out / "results.zip"), "--json"]) == 0
    taken = json.loads(capsys.readouterr().out)
    assert (taken["verdicts"], taken["comparisons"], taken["known"]) == (0, 0, 6 + row["comparisons"])

    decisions = plan(root, paths)
    assert not [d for d in decisions if isinstance(d, RequestComparison)], "home wanted more measured"
    merges = [d for d in decisions if isinstance(d, Merge)]
    assert merges and not requests(paths)[0]
    with Hub(paths) as hub, Ledger(paths) as ledger:
        champion = hub.commit(hub.champions()["double"])
        assert champion.parents[1] == row["now"], "the host foresaw another champion"
        assert b"REPEAT = 1\n" in hub.solution_files(champion.sha)["solution.toml"]
        assert float(champion.message.trailers["Speedup"]) > 1.5
        faster = {c.id for c in ledger.comparisons("double") if c.outcome is Outcome.FASTER}
        assert set(champion.message.trailers["Comparison"].split(", ")) <= faster
        statuses = sorted(v.status for v in ledger.verdicts("double"))
        assert statuses == [Status.COMPILE_ERROR, *[Status.PASSED] * 4]
    assert cli.main(["pending", "--bundle", str(away / "none.zip")]) == 1
    assert "nothing is pending" in capsys.readouterr().err
    assert cli.main(["results", "list", "--json"]) == 0
    [run] = json.loads(capsys.readouterr().out)
    assert (run["run"], run["verdicts"]) == ("t", 5)


def test_whatever_judges_can_be_imported_on_a_bare_host(bare: dict[str, str]) -> None:
    """Judges, references and compilers are processes of their own; none needs more than a bare host has."""
    folders = ("swarm/judge", "swarm/languages", "swarm/pool")
    paths = [path for folder in folders for path in sorted((REPOSITORY / folder).rglob("*.py"))]
    names = [".".join(path.relative_to(REPOSITORY).with_suffix("").parts) for path in paths]
    code = f"import importlib\nfor name in {names!r}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-P", "-c", code], env=bare, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "module", ["git", "watchdog", "optuna", "openai", "matplotlib", "rich", "psutil", "numpy"]
)
def test_the_bare_host_of_these_tests_is_bare(bare: dict[str, str], module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import {module}"], env=bare, capture_output=True, text=True
    )
    assert f"No module named '{module}'" in done.stderr
