"""Commits that somebody made with a git of his own: nothing in them runs, escapes, or stops the run.

All of them lie in the hub while one run goes from its seed to its best kernel, with the real worker, watcher
and planner; then every command that reads the hub is called.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm.cli import main as cli
from swarm.errors import BadInput
from swarm.job import Tree
from swarm.protocol import load_protocol
from swarm.solution import validate_tree
from swarm.verdict import Status
from tests.gitkit import git
from tests.hygiene import plants
from tests.hygiene.plants import Objects
from tests.support import Swarm, TablePool, by_params, make_root, params_of

REFUSED, JUDGED, HARMLESS = plants.refused(), plants.judged(), plants.harmless()


class Run:
    """A run that came to its end with every plant in its hub."""

    def __init__(self, folder: Path) -> None:
        self.faults: dict[str, str] = {}
        root = make_root(folder)
        self._protocol = load_protocol(root.coordination.read_text())
        self.swarm = Swarm(root, TablePool(self._table))
        self.swarm.start("rope", seed=plants.SEED)
        self.swarm.round()
        hub = self.swarm.paths.hub
        objects = Objects(hub, self.swarm.hub.champions()["rope"])
        made = {name: plant for name, (plant, _) in (REFUSED | JUDGED).items()} | HARMLESS
        self.commits = {name: plant(objects) for name, plant in made.items()}
        for number, commit in enumerate(self.commits.values()):
            ref = hub / f"refs/heads/work/rope/m{number}-1"
            ref.parent.mkdir(parents=True, exist_ok=True)
            ref.write_text(f"{commit}\n")
        self.swarm.until(self.swarm.is_quiet)

    def _table(self, tree: Tree) -> float | Status:
        """Say what the judge's build would say of a tree; its time is as always."""
        try:
            validate_tree(tree.files, self._protocol)
        except BadInput as error:
            self.faults[tree.commit] = str(error)
            return Status.INVALID_SOLUTION
        return by_params(tree)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    run = Run(tmp_path_factory.mktemp("planted"))
    with run.swarm:
        yield run


@pytest.mark.parametrize("name", REFUSED)
def test_a_tree_that_is_not_plain_files_at_plain_paths_is_refused_as_a_commit(run: Run, name: str) -> None:
    refusal = run.swarm.ledger.refusals("rope")[run.commits[name]]
    assert REFUSED[name][1] in refusal.reason
    assert len(refusal.reason) < 500 and refusal.reason.isprintable()


@pytest.mark.parametrize("name", JUDGED)
def test_a_tree_that_breaks_the_protocol_is_judged_invalid(run: Run, name: str) -> None:
    assert JUDGED[name][1] in run.faults[run.commits[name]]
    verdicts = {verdict.commit: verdict.status for verdict in run.swarm.ledger.verdicts("rope")}
    assert verdicts[run.commits[name]] is Status.INVALID_SOLUTION


@pytest.mark.parametrize("name", HARMLESS)
def test_a_commit_with_hostile_text_counts_as_its_branchs_and_no_more(run: Run, name: str) -> None:
    listed = {item.commit: item for item in run.swarm.hub.commits("rope")}
    found = listed[run.commits[name]]
    assert found.branch is not None and found.branch.worker.startswith("m")
    assert len(found.subject) <= 200 and (found.subject.isprintable() or not found.subject)
    planners = [item for item in listed.values() if item.branch is None]
    assert all(run.swarm.hub.commit(item.commit).author in ("swarm", "planner") for item in planners)


def test_the_run_ends_at_its_best_kernel_all_the_same(run: Run) -> None:
    assert params_of(run.swarm.champion("rope")) == plants.BEST
    assert run.swarm.watcher.faults() == []


@pytest.mark.parametrize(
    "words",
    [
        ["log", "rope"],
        ["log", "rope", "--json"],
        ["status"],
        ["report"],
        ["pending"],
        ["pending", "--device-model", "nvidia-h200", "--bundle", "all.bundle"],
        ["results", "list"],
    ],
    ids=" ".join,
)
def test_every_command_that_reads_the_hub_goes_through(
    run: Run, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(run.swarm.root.path)
    monkeypatch.setenv("SWARM_RUN", "test")
    assert cli.main(words) == 0, capsys.readouterr().err
    told = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\u202e"} & {*told}
    if words[-1] == "--json":
        assert run.commits["second parent"] in {entry["commit"] for entry in json.loads(told)}


def test_a_clone_of_the_bundle_by_a_users_git_runs_nothing(run: Run, tmp_path: Path) -> None:
    run.swarm.hub.bundle()
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(run.swarm.paths.hub_bundle), str(clone)], check=True)
    assert sorted(path.name for path in (clone / "solution").iterdir()) == ["kernel.cpp", "solution.toml"]
    assert not (clone / ".gitmodules").exists() and not (clone / ".gitattributes").exists()


def test_nothing_in_a_commit_ran_or_left_its_place(run: Run) -> None:
    strange = [path for path in run.swarm.root.path.parent.rglob("*") if "it-ran" in path.name]
    assert strange == []
    assert git(run.swarm.paths.hub, "config", "--list", "--local").count("\n") == 2


def test_a_watcher_does_not_take_more_memory_than_a_solution_may_have(run: Run) -> None:
    """One file of 1 MiB under 400 names would be 400 MiB, and under 10,000 names ten gigabytes.

    What `getrusage` says would count the process that started this one as well.
    """
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from swarm.errors import BadInput\n"
        "from swarm.hub import Hub\n"
        "from swarm.layout import RunRoot\n"
        "with Hub(RunRoot(Path(sys.argv[1])).run('test')) as hub:\n"
        "    try:\n"
        "        hub.solution_files(sys.argv[2])\n"
        "    except BadInput as error:\n"
        "        print(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])\n"
    )
    words = [sys.executable, "-c", code, str(run.swarm.root.path), run.commits["large in all"]]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200 * 1024
