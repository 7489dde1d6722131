"""Bundles and parcels: what leaves is whole, what comes home is believed only where it fits the run.

The pool of these tests looks times up; everything between git and the planner's merge is the product.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from swarm import bundle as bundles
from swarm.away import TRIES, Sitting, check_fits
from swarm.bundle import Bundle
from swarm.cli import main as cli
from swarm.cli import state
from swarm.errors import BadInput, Refused, SwarmError
from swarm.intake import Taken, take_in
from swarm.job import Job, Tree
from swarm.layout import RunRoot
from swarm.ledger import Ledger
from swarm.parcel import ARCHIVE, ORIGIN, Origin, claim, opened, pack
from swarm.pending import bundle_of, pending
from swarm.planner.decisions import Merge, RequestComparison
from swarm.planner.facts import Trial
from swarm.pool.protocol import Done, Lost
from swarm.problem import load_problem
from swarm.protocol import load_protocol
from swarm.requests import Request, ask, requests
from swarm.verdict import JUDGE_VERSION, Comparison, Outcome, Status, Verdict
from tests.problem_files import write_double
from tests.support import (
    DEVICE,
    SEED,
    Swarm,
    TablePool,
    comparison_of,
    make_root,
    solution,
    verdict_of,
)

UUID = "w1"


@dataclass(slots=True)
class Elsewhere(TablePool):
    """The table's records as a judge would make them: a secret seed each, workloads that the problem has."""

    judged: int = 0

    def _judge(self, job: Job) -> Verdict | Comparison:
        self.judged += 1
        if job.champion is None:
            verdict = verdict_of(job, self.table)
            workloads = tuple(replace(one, uuid=UUID) for one in verdict.workloads)
            return replace(verdict, workloads=workloads, seed=secrets.token_hex(16))
        comparison = comparison_of(job, self.table)
        ratios = tuple(replace(one, uuid=UUID) for one in comparison.workloads)
        found = replace(comparison, workloads=ratios, seed=secrets.token_hex(16))
        if found.ratio is None:
            return found
        return replace(found, low=found.ratio * 0.999, high=found.ratio * 1.001)


class Run(Swarm):
    """A run whose problems are whole, and a folder that stands for the other host."""

    def problem_files(self, problem: str) -> dict[str, bytes]:
        if not self.root.problem(problem).exists():
            write_double(self.root.problem(problem))
        coordination = self.root.coordination
        return {
            **load_problem(self.root.problem(problem)).files,
            coordination.name: coordination.read_bytes(),
        }

    def add(self, problem: str, worker: str, *tries: Mapping[str, int]) -> list[str]:
        branch = self.hub.assign(problem, worker)
        return [
            self.hub.submit(worker, branch, solution(**params), None, f"Try {params}", {}) for params in tries
        ]

    def bundle(self, device_model: str | None = DEVICE.model) -> Bundle:
        protocol = load_protocol(self.root.coordination.read_text())
        found = pending(self.paths, self.hub, self.ledger, protocol, device_model)
        assert not found.faults
        return bundle_of(self.paths.run, found, device_model, [], 0.0, 1.0)

    def take(self, source: Path) -> Taken:
        with opened(source) as parcel:
            return take_in(parcel, str(source), self.root, self.paths, self.hub, self.ledger, 4e9)

    def merges(self, steps: int = 12) -> list[Merge]:
        """Let the planner decide; asking for a comparison that should have been there is a failure."""
        made = [decision for _ in range(steps) for decision in self.planner.step()]
        assert not [d for d in made if isinstance(d, RequestComparison)]
        return [d for d in made if isinstance(d, Merge)]


def sit(bundle: Bundle, out: Path, pool: TablePool | None = None) -> Sitting:
    """Work a bundle off in `out`, as `swarm bench --bundle` does."""
    root = RunRoot(out)
    root.path.mkdir(exist_ok=True)
    claim(root, Origin(bundle.run, bundle.judge_version, DEVICE.model))
    with Ledger(root.run(bundle.run)) as ledger:
        sitting = Sitting(
            bundle, ledger, pool or Elsewhere(), DEVICE.model, lambda outcome: None, retry_s=0.0
        )
        sitting.run()
        standings = [sitting.standing(part) for part in bundle.parts]
        assert all(s.request is None or sitting.left() for s in standings)
    return sitting


def files_of(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("results/**/*.json")}


@pytest.fixture
def run(tmp_path: Path) -> Any:
    with Run(make_root(tmp_path / "home"), workers=()) as swarm:
        swarm.start("rope")
        yield swarm


# what leaves


def test_a_bundle_comes_out_as_it_went_in(run: Run, tmp_path: Path) -> None:
    run.add("rope", "w1", {"BLOCK": 2, "UNROLL": 1}, {"BLOCK": 4, "UNROLL": 1})
    made = run.bundle()
    [part] = made.parts
    assert len(part.pending) == 3 and part.trees[part.pending[0]].commit == part.facts.champion
    bundles.write(tmp_path / "b.zip", made)
    assert bundles.read(tmp_path / "b.zip") == made
    bundles.write(tmp_path / "again.zip", made)
    assert (tmp_path / "again.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_files_that_many_trees_share_are_in_it_once(run: Run, tmp_path: Path) -> None:
    run.add("rope", "w1", *({"BLOCK": n, "UNROLL": 1} for n in range(2, 12)))
    bundles.write(tmp_path / "b.zip", run.bundle())
    with zipfile.ZipFile(tmp_path / "b.zip") as file:
        contents = [file.read(name) for name in file.namelist()]
    assert len(set(contents)) == len(contents)
    assert contents.count(SEED["kernel.cpp"]) == 1


def _rewrite(path: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)


def _manifest(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, bytes]], None]:
    def rewrite(members: dict[str, bytes]) -> None:
        raw = json.loads(members[bundles.MANIFEST])
        change(raw)
        members[bundles.MANIFEST] = json.dumps(raw).encode()

    return rewrite


def _other_content(members: dict[str, bytes]) -> None:
    name = next(name for name in members if name.startswith("files/"))
    members[name] += b" "


def _trial(raw: dict[str, Any], **fields: Any) -> None:
    trial = raw["parts"][0]["facts"]["trials"][0]
    for name, value in fields.items():
        trial[Trial._fields.index(name)] = value


BROKEN: dict[str, Callable[[dict[str, bytes]], None]] = {
    "no manifest": lambda members: members.pop(bundles.MANIFEST) and None,
    "a file with other content": _other_content,
    "a file that leads out": lambda members: members.update({"../../evil": b"x"}),
    "a file is missing": lambda m: m.pop(next(n for n in m if n.startswith("files/"))) and None,
    "another format": _manifest(lambda raw: raw.update(format=99)),
    "a run that is a path": _manifest(lambda raw: raw.update(run="../x")),
    "a problem that is a path": _manifest(lambda raw: raw["parts"][0]["facts"].update(name="../x")),
    "a tree of no trial": _manifest(lambda raw: raw["parts"][0]["trees"][0].update(sha="0" * 40)),
    "a pending tree without files": _manifest(lambda raw: raw["parts"][0].update(pending=["1" * 40])),
    "a champion of no trial": _manifest(lambda raw: raw["parts"][0]["facts"].update(champion_tree="2" * 40)),
    "a status that is none": _manifest(
        lambda raw: raw["parts"][0]["facts"]["trials"][0].__setitem__(4, "FAST")
    ),
    "a time that is no number": _manifest(lambda raw: _trial(raw, status="PASSED", time_us=float("nan"))),
    "a pass without a time": _manifest(lambda raw: _trial(raw, status="PASSED")),
    "two results of one tree": _manifest(
        lambda raw: raw["parts"][0]["facts"]["trials"].append(
            [*raw["parts"][0]["facts"]["trials"][0][:4], "TIMEOUT", None, False]
        )
    ),
    "a date that is no number": _manifest(lambda raw: _trial(raw, at_s=float("nan"))),
    "a tree wanted twice": _manifest(
        lambda raw: raw["parts"][0].update(pending=2 * raw["parts"][0]["pending"])
    ),
    "a champion's commit of nobody": _manifest(
        lambda raw: raw["parts"][0]["facts"].update(champion="7" * 40)
    ),
    "endless time for baselines": _manifest(lambda raw: raw.update(baseline_s=float("inf"))),
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN.keys())
def test_a_bundle_that_does_not_hold_together_is_one_line(
    run: Run, tmp_path: Path, change: Callable[[dict[str, bytes]], None]
) -> None:
    path = tmp_path / "b.zip"
    bundles.write(path, run.bundle())
    _rewrite(path, change)
    with pytest.raises(BadInput) as caught:
        bundles.read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_bundle_that_was_cut_short_is_one_line(run: Run, tmp_path: Path, share: float) -> None:
    path = tmp_path / "b.zip"
    bundles.write(path, run.bundle())
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(BadInput, match="not a sound bundle"):
        bundles.read(path)
    with pytest.raises(BadInput, match="no such file"):
        bundles.read(tmp_path / "nowhere.zip")


def _spoil(data: bytes, dice: random.Random) -> bytes:
    """Return `data` with some bytes changed, left out, doubled or put elsewhere."""
    spoilt = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at, length = dice.randrange(len(spoilt)), dice.choice([1, 1, 1, 4, 64])
        match dice.randrange(4):
            case 0:
                spoilt[at : at + length] = dice.randbytes(length)
            case 1:
                del spoilt[at : at + length]
            case 2:
                spoilt[at:at] = spoilt[at : at + length]
            case _:
                spoilt[at : at + length] = bytes(length)
    return bytes(spoilt)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_became_of_a_bundle_on_its_way_is_found_out(
    settled: tuple[Run, Path], tmp_path: Path, seed: int
) -> None:
    run, _ = settled
    path, dice = tmp_path / "b.zip", random.Random(seed)
    bundles.write(path, run.bundle(None))
    data, whole = path.read_bytes(), bundles.read(path)
    for _ in range(150):
        path.write_bytes(_spoil(data, dice))
        try:
            found = bundles.read(path)
        except BadInput:
            continue
        assert found == whole, "it can be read, and says something else"


def test_a_problem_with_a_broken_protocol_is_left_out_and_the_others_go_on(run: Run, tmp_path: Path) -> None:
    run.start("swiglu")
    made = run.bundle()
    first, second = made.parts
    for files in ({}, {"COORDINATION.md": b"no blocks"}, {"COORDINATION.md": b"\xff"}):
        broken = replace(first, problem_files=files)
        sitting = sit(replace(made, parts=(broken, second)), tmp_path / "out")
        assert list(sitting.left()) == [first.facts.name] and "COORDINATION" in sitting.left()["rope"]
    assert len(files_of(tmp_path / "out")) == 1


def test_a_host_that_does_not_fit_says_what_would(run: Run) -> None:
    made = run.bundle()
    check_fits(made, DEVICE.model)
    check_fits(replace(made, device_model=None), "whatever")
    with pytest.raises(Refused, match="swarm pending --device-model h200"):
        check_fits(made, "h200")
    with pytest.raises(Refused, match="same version"):
        check_fits(replace(made, judge_version=JUDGE_VERSION + 1), DEVICE.model)


def test_a_refused_commit_does_not_leave_and_is_on_file(run: Run, tmp_path: Path) -> None:
    [commit] = run.add("rope", "w1", {"BLOCK": 2, "UNROLL": 1})
    run.ledger.refuse("rope", commit, "it breaks the protocol")
    # The same tree may come in another commit; the watcher looks at the commit itself, which is sound.
    assert len(run.bundle().parts[0].pending) == 2
    assert all(t.refused for t in run.bundle().parts[0].facts.trials if t.commit == commit)


def test_a_comparison_that_was_asked_for_at_home_is_played_under_its_id(run: Run, tmp_path: Path) -> None:
    [commit] = run.add("rope", "w1", {"BLOCK": 2, "UNROLL": 1})
    run.watcher.pool = Elsewhere()
    run.until(lambda: len(run.ledger.verdicts("rope")) == 2, rounds=20)
    asked = requests(run.paths)[0] or [
        Request(f"{'0' * 8}-{'1' * 8}-1", "rope", run.hub.champions()["rope"], commit)
    ]
    for request in asked:
        ask(run.paths, request)
    made = run.bundle()
    [part] = made.parts
    assert [one.id for one in part.wanted] == [one.id for one in asked] and not part.pending
    sit(made, tmp_path / "out")
    names = [Path(name).stem for name in files_of(tmp_path / "out")]
    assert asked[0].id in names


# the sitting


def _random_table(seed: int) -> Callable[[Tree], float | Status]:
    """Times that follow from the parameters, with ties, failures and a wrong champion among them."""

    def table(tree: Tree) -> float | Status:
        dice = random.Random(f"{seed}/{sorted(tree.files.items())}")
        if dice.random() < 0.2:
            return dice.choice([Status.RUNTIME_ERROR, Status.INCORRECT_NUMERICAL, Status.TIMEOUT])
        return dice.choice([10.0, 20.0, 40.0, 41.0]) * dice.choice([1.0, 1.002, 1.1, 1.3])

    return table


@pytest.mark.parametrize("seed", range(8))
def test_home_merges_what_the_sitting_foresaw_without_measuring_more(tmp_path: Path, seed: int) -> None:
    """Away and home decide by the same policy, so they end with the same champion, whatever the times are."""
    with Run(make_root(tmp_path / "home"), workers=()) as run:
        run.start("rope", "swiglu")
        dice = random.Random(seed)
        for problem in ("rope", "swiglu"):
            for worker in ("w1", "w2"):
                tries = [
                    {"BLOCK": dice.randint(1, 50), "UNROLL": dice.randint(1, 4)}
                    for _ in range(dice.randint(0, 5))
                ]
                run.add(problem, worker, *tries)
        made = run.bundle(None if seed % 2 else DEVICE.model)
        pool = Elsewhere(table=_random_table(seed))
        sitting = sit(made, tmp_path / "out", pool)
        assert not sitting.left()
        taken = run.take(tmp_path / "out")
        assert not taken.faults and taken.verdicts + taken.comparisons == pool.judged
        merged = run.merges()
        assert not requests(run.paths)[0]
        foreseen = 0
        with Ledger(RunRoot(tmp_path / "out").run("test")) as ledger:
            sitting.ledger = ledger
            for part in made.parts:
                standing = sitting.standing(part)
                foreseen += len(standing.merges)
                champion = run.hub.champions()[part.facts.name]
                trees = {s.commit: s.tree for s in run.hub.commits(part.facts.name)}
                assert trees[champion] == standing.facts.champion_tree
        assert len(merged) == foreseen
        # and nothing is left to be carried away
        assert not run.bundle().parts


def test_a_second_bundle_holds_only_what_is_new(run: Run, tmp_path: Path) -> None:
    run.add("rope", "w1", {"BLOCK": 2, "UNROLL": 1})
    sit(run.bundle(None), tmp_path / "out")
    run.take(tmp_path / "out")
    assert not run.bundle().parts, "a merge waits for the planner, and nothing for a device"
    run.merges()
    run.add("rope", "w2", {"BLOCK": 4, "UNROLL": 1})
    made = run.bundle()
    [part] = made.parts
    assert len(part.pending) == 1 and part.facts.champion_tree in part.trees
    pool = Elsewhere()
    sit(made, tmp_path / "out", pool)  # into the same folder
    assert pool.judged == 3
    assert run.take(tmp_path / "out").known == 4
    assert len(run.merges()) == 1
    assert run.champion("rope").files == solution(BLOCK=4, UNROLL=1)


class Killed(Exception):
    """The process ended here."""


@dataclass(slots=True)
class Mortal(Elsewhere):
    """Dies after some records."""

    lives: int = 0

    def poll(self, timeout_s: float) -> list[Done | Lost]:
        if self.judged >= self.lives:
            raise Killed
        return Elsewhere.poll(self, timeout_s)


def test_a_sitting_that_is_killed_between_any_two_records_goes_on(run: Run, tmp_path: Path) -> None:
    run.add("rope", "w1", *({"BLOCK": n, "UNROLL": 1} for n in (2, 4, 8, 3)))
    made = run.bundle()
    whole = Elsewhere()
    sit(made, tmp_path / "whole", whole)
    out, judged = tmp_path / "out", 0
    for _ in range(100):
        pool = Mortal(lives=1)
        try:
            sit(made, out, pool)
        except Killed:
            judged += pool.judged
            continue
        judged += pool.judged
        break
    assert judged == whole.judged == len(files_of(out)), "something was judged twice or not at all"
    assert files_of(out).keys() == files_of(tmp_path / "whole").keys()


def test_what_is_lost_is_tried_again_and_then_said(run: Run, tmp_path: Path) -> None:
    run.start("swiglu")
    run.add("rope", "w1", {"BLOCK": 2, "UNROLL": 1})
    made = run.bundle()
    job = made.parts[0].verdict_job(made.parts[0].pending[1], DEVICE.model)
    pool = Elsewhere(lose={job.id})
    assert not sit(made, tmp_path / "once", pool).left()

    @dataclass(slots=True)
    class Hopeless(Elsewhere):
        times: int = 0

        def poll(self, timeout_s: float) -> list[Done | Lost]:
            found = Elsewhere.poll(self, timeout_s)
            self.times += sum(one.job.id == job.id for one in found)
            return [Lost(one.job, "it is cursed") if one.job.id == job.id else one for one in found]

    hopeless = Hopeless()
    sitting = sit(made, tmp_path / "never", hopeless)
    assert sitting.left() == {job.id: "it is cursed"} and hopeless.times == TRIES
    assert len(files_of(tmp_path / "never")) == 2
    run.take(tmp_path / "never")
    assert [tree for part in run.bundle().parts for tree in part.pending] == [job.candidate.sha]


def test_a_folder_of_another_device_or_run_is_left_alone(tmp_path: Path) -> None:
    root = RunRoot(tmp_path / "out")
    root.path.mkdir()
    claim(root, Origin("a", 1, "h200"))
    claim(root, Origin("a", 1, "h200"))
    for other in (Origin("b", 1, "h200"), Origin("a", 2, "h200"), Origin("a", 1, "b200")):
        with pytest.raises(Refused, match="name another folder"):
            claim(root, other)


# what comes home


@pytest.fixture
def parcel(run: Run, tmp_path: Path) -> Path:
    """A parcel with two verdicts and two comparisons."""
    run.add("rope", "w1", {"BLOCK": 2, "UNROLL": 1})
    sit(run.bundle(), tmp_path / "out")
    assert len(files_of(tmp_path / "out")) == 4
    return tmp_path / "out"


Change = Callable[[dict[str, Any]], None]


def _set(**fields: Any) -> Change:
    return lambda raw: raw.update(fields)


def _workload(**fields: Any) -> Change:
    return lambda raw: raw["workloads"][0].update(fields)


FORGED_VERDICTS: dict[str, Change] = {
    "another key": _set(key="0" * 32),
    "another tree": _set(tree="3" * 40),
    "another commit": _set(commit="4" * 40),
    "another epoch": _set(epoch="5" * 32),
    "another judge": _set(judge_version=JUDGE_VERSION + 1),
    "another problem": _set(problem="swiglu"),
    "a problem that is a path": _set(problem="../../x"),
    "no workloads": _set(workloads=[]),
    "a workload of another problem": _workload(uuid="w7"),
    "a workload twice": lambda raw: raw["workloads"].append(raw["workloads"][0]),
    "passed with a failed workload": _workload(status="TIMEOUT", time_us=None),
    "passed without a time": _workload(time_us=None),
    "no time at all": _workload(time_us=0.0),
    "a negative time": _workload(time_us=-1.0),
    "an endless time": _workload(time_us=float("inf")),
    "a time that is no number": _workload(time_us=float("nan")),
    "an error that is no number": _workload(max_abs_error=float("nan")),
    "a date that is no number": _set(created_s=float("nan")),
    "a status that is none": _set(status="GOOD"),
    "a log without end": _set(log="x" * 100_000),
    "a doubt without end": lambda raw: raw["environment"].update(trust_reason="x" * 100_000),
    "a device model that is a path": lambda raw: raw["environment"].update(device_model="../x"),
    "another device model": lambda raw: raw["environment"].update(device_model="h200"),
    "a field too few": lambda raw: raw.pop("seed"),
}
FORGED_COMPARISONS: dict[str, Change] = {
    "an id that is a path": _set(id="../../x"),
    "an id of another pair": _set(id="00000000-11111111-1"),
    "a tree of nobody": _set(candidate_tree="6" * 40),
    "a tree with itself": lambda raw: raw.update(champion_tree=raw["candidate_tree"]),
    "another epoch": _set(epoch="5" * 32),
    "another judge": _set(judge_version=0),
    "faster without a ratio": _set(ratio=None, low=None, high=None),
    "faster below 1": _set(ratio=0.9, low=0.8, high=0.95),
    "faster, perhaps": _set(low=0.99),
    "faster and failed": _set(failure="TIMEOUT"),
    "half an interval": _set(low=None),
    "a ratio without end": _set(high=float("inf")),
    "a workload's ratio that is no number": _workload(ratio=float("nan")),
    "workloads missing": _set(workloads=[]),
    "no quads": _workload(quads=0),
    "no seed": _set(seed=""),
}


def _forge(out: Path, kind: str, change: Change) -> Path:
    path = sorted(out.glob(f"results/test/{kind}/rope/*.json"))[0]
    raw = json.loads(path.read_bytes())
    change(raw)
    path.write_text(json.dumps(raw))
    return path


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run and a parcel for it that nobody changes."""
    folder = tmp_path_factory.mktemp("settled")
    with Run(make_root(folder / "home"), workers=()) as swarm:
        swarm.start("rope")
        swarm.add("rope", "w1", {"BLOCK": 2, "UNROLL": 1})
        sit(swarm.bundle(), folder / "out")
        yield swarm, folder / "out"


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        *(pytest.param("verdicts", change, id=name) for name, change in FORGED_VERDICTS.items()),
        *(pytest.param("comparisons", change, id=name) for name, change in FORGED_COMPARISONS.items()),
    ],
)
def test_a_forged_record_is_not_taken_and_the_others_are(
    settled: tuple[Run, Path], tmp_path: Path, kind: str, change: Change
) -> None:
    run, source = settled
    parcel = tmp_path / "out"
    shutil.copytree(source, parcel)
    path = _forge(parcel, kind, change)
    forged = path.read_bytes()
    root = RunRoot(tmp_path / "home")
    with opened(parcel) as found, Ledger(root.run("test")) as ledger:
        taken = take_in(found, str(parcel), root, root.run("test"), run.hub, ledger, 4e9)
        assert len(ledger.facts("rope")) + len(ledger.comparison_facts("rope")) == 3
        assert not ledger.broken("rope")
    [fault] = taken.faults
    assert path.name in str(fault)
    assert taken.verdicts + taken.comparisons == 3
    assert path.read_bytes() == forged, "nothing is lost"


def test_a_record_under_the_name_of_another_is_not_taken(run: Run, parcel: Path) -> None:
    first, second = sorted(parcel.glob("results/test/verdicts/rope/*.json"))
    second.write_bytes(first.read_bytes())
    taken = run.take(parcel)
    assert (taken.verdicts, len(taken.faults)) == (1, 1)
    assert "named for another record" in str(taken.faults[0])


def test_links_pipes_and_huge_files_are_no_records(run: Run, parcel: Path) -> None:
    folder = parcel / "results/test/verdicts/rope"
    (folder / ("a" * 32 + ".json")).symlink_to("/etc/passwd")
    (folder / ("b" * 32 + ".json")).write_bytes(b" " * (2 << 20))
    (folder / ("c" * 32 + ".json")).write_text("[" * 100_000)
    (folder / "notes.txt").write_text("hello")
    os.mkfifo(folder / ("d" * 32 + ".json"))
    taken = run.take(parcel)
    assert (taken.verdicts, taken.comparisons, len(taken.faults)) == (2, 2, 2)


def test_a_zip_cannot_lead_out_of_itself(run: Run, parcel: Path, tmp_path: Path) -> None:
    archive = pack(RunRoot(parcel))
    assert archive.name == ARCHIVE
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("results/test/verdicts/../../../../x.json", b"{}")
        file.writestr("/etc/x.json", b"{}")
    taken = run.take(archive)
    assert (taken.verdicts, taken.comparisons, taken.faults) == (2, 2, [])
    assert run.take(parcel).known == 4
    (tmp_path / "no.zip").write_bytes(b"PK\3\4 and then nothing")
    with pytest.raises(BadInput, match="not results"):
        run.take(tmp_path / "no.zip")
    with pytest.raises(BadInput, match="no such file"):
        run.take(tmp_path / "nowhere")


def test_a_member_without_a_name_is_not_ours(run: Run, parcel: Path) -> None:
    archive = pack(RunRoot(parcel))
    archive.write_bytes(archive.read_bytes().replace(ORIGIN.encode(), b"\0rigin.json"))  # read as ""
    with pytest.raises(BadInput, match=f"no {ORIGIN}"):
        run.take(archive)


ORIGINS: dict[str, bytes | None] = {
    "another run": json.dumps(asdict(Origin("other", JUDGE_VERSION, DEVICE.model))).encode(),
    "another judge": json.dumps(asdict(Origin("test", JUDGE_VERSION + 1, DEVICE.model))).encode(),
    "a path": json.dumps(asdict(Origin("../x", JUDGE_VERSION, DEVICE.model))).encode(),
    "not JSON": b"\xff",
    "too deep": b"[" * 100_000,
    "missing": None,
}


@pytest.mark.parametrize("seed", range(4))
def test_whatever_became_of_results_on_their_way_nothing_false_is_taken(
    settled: tuple[Run, Path], tmp_path: Path, seed: int
) -> None:
    run, source = settled
    shutil.copytree(source, tmp_path / "out")
    archive, dice = pack(RunRoot(tmp_path / "out")), random.Random(seed)
    data, sound = archive.read_bytes(), set(files_of(source).values())
    for number in range(60):
        archive.write_bytes(_spoil(data, dice))
        root = RunRoot(tmp_path / f"home-{number}")
        with Ledger(root.run("test")) as ledger:
            try:
                with opened(archive) as found:
                    take_in(found, "parcel", root, root.run("test"), run.hub, ledger, 4e9)
            except SwarmError:
                pass
            assert set(files_of(root.path).values()) <= sound, "a record is on file that nobody made"
            assert not ledger.broken("rope")


@pytest.mark.parametrize("origin", ORIGINS.values(), ids=ORIGINS.keys())
def test_a_parcel_of_another_origin_is_refused_whole(run: Run, parcel: Path, origin: bytes | None) -> None:
    before = files_of(parcel)
    if origin is None:
        (parcel / ORIGIN).unlink()
    else:
        (parcel / ORIGIN).write_bytes(origin)
    with pytest.raises(SwarmError):
        run.take(parcel)
    assert not run.ledger.verdicts("rope") and files_of(parcel) == before


def test_two_sittings_of_one_bundle_lose_no_comparison(run: Run, tmp_path: Path) -> None:
    """Both hosts numbered from one; the second's comparisons get numbers of their own, once."""
    run.add("rope", "w1", {"BLOCK": 2, "UNROLL": 1})
    made = run.bundle()
    for name in ("one", "two"):
        sit(made, tmp_path / name)
    assert run.take(tmp_path / "one").renumbered == []
    second = run.take(tmp_path / "two")
    assert (second.comparisons, len(second.renumbered), second.known) == (2, 2, 2)
    again = run.take(tmp_path / "two")
    assert (again.comparisons, again.renumbered, again.known) == (0, [], 4)
    found = run.ledger.comparisons("rope")
    assert len({c.seed for c in found}) == len({c.id for c in found}) == 4
    assert all(c.outcome is Outcome.FASTER for c in found)
    [merge] = run.merges()
    assert len(merge.comparisons) == 4


def test_a_clock_that_is_ahead_does_not_judge_in_the_future(run: Run, parcel: Path) -> None:
    for path in parcel.glob("results/test/*/rope/*.json"):
        raw = json.loads(path.read_bytes())
        path.write_text(json.dumps({**raw, "created_s": 9e9}))
    assert not run.take(parcel).faults
    assert {v.created_s for v in run.ledger.verdicts("rope")} == {4e9}


def test_a_record_on_file_is_never_replaced(run: Run, parcel: Path) -> None:
    run.take(parcel)
    before = files_of(run.root.path)
    for kind in ("verdicts", "comparisons"):
        _forge(parcel, kind, _set(reason="a better story"))
    taken = run.take(parcel)
    assert (taken.verdicts, taken.comparisons, taken.known) == (0, 0, 4)
    assert files_of(run.root.path) == before


def test_results_of_an_epoch_that_is_over_stay_where_they_are(run: Run, parcel: Path) -> None:
    text = run.root.coordination.read_text()
    run.root.coordination.write_text(text.replace("rounds = 5", "rounds = 6"))
    run.start("rope")
    taken = run.take(parcel)
    assert len(taken.faults) == 4 and all("epoch" in str(fault) for fault in taken.faults)


# the commands


def test_bench_wants_a_problem_or_a_bundle_and_a_folder(tmp_path: Path) -> None:
    for words in ([], ["--bundle", "b.zip"], ["--out", "x"], ["double", "--bundle", "b.zip", "--out", "x"]):
        assert cli.main(["bench", *words]) == 2


def test_bench_says_in_one_line_what_is_wrong_with_a_bundle(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "b.zip", tmp_path / "out"
    path.write_bytes(b"no bundle")
    assert cli.main(["bench", "--bundle", str(path), "--out", str(out)]) == 1
    assert "not a sound bundle" in capsys.readouterr().err
    bundles.write(path, run.bundle("nvidia-h200"))
    assert cli.main(["bench", "--bundle", str(path), "--out", str(out), "--device", "cpu"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert "the bundle is for nvidia-h200" in said and "swarm pending --device-model" in said
    assert not out.exists()


@pytest.fixture
def at_home(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(run.root.path)
    monkeypatch.setenv("SWARM_RUN", "test")
    return run


def test_pending_looks_for_the_runs_own_model_then_the_newest_verdicts_then_any(
    at_home: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def model(*words: str) -> str | None:
        assert cli.main(["pending", "--json", *words]) == 0
        found = json.loads(capsys.readouterr().out)["device_model"]
        assert found is None or isinstance(found, str)
        return found

    assert model() is None
    sit(at_home.bundle(None), tmp_path / "out")
    at_home.take(tmp_path / "out")
    assert model() == DEVICE.model
    state.save(at_home.paths, state.RunState("tuner", "cuda", (), ("rope",), 0.0, 1.0, "nvidia-h200", ()))
    assert model() == "nvidia-h200"
    assert model("--device-model", "any") is None
    assert model("--device-model", "NVIDIA B200") == "nvidia-b200"
    assert cli.main(["pending", "--device-model", "***"]) == 1
    assert "is not a device model" in capsys.readouterr().err


def test_import_ends_with_what_was_not_taken_and_the_rest_is_on_file(
    at_home: Run, parcel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _forge(parcel, "comparisons", _set(ratio=None))
    assert cli.main(["results", "import", str(parcel)]) == 1
    said = capsys.readouterr()
    assert said.out == "taken in: 2 verdicts, 1 comparisons, 0 baselines; 0 were on file already\n"
    assert "not taken" in said.err and said.err.count("\n") == 1
    assert cli.main(["results", "import", str(parcel / "nothing")]) == 1
    assert cli.main(["results", "import", str(parcel), "--run", "other"]) == 1
    assert "no hub" in capsys.readouterr().err
