"""Histories follow from hub and ledger: the current epoch, judge and device only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from swarm.baseline import Baseline, Contender, save_baseline
from swarm.cli import main as cli
from swarm.cli.scores import score_of
from swarm.hub import Hub
from swarm.layout import RunPaths, RunRoot
from swarm.ledger import Ledger
from swarm.messages import format_message
from swarm.report.collect import collect
from swarm.verdict import (
    JUDGE_VERSION,
    Comparison,
    Environment,
    Outcome,
    Status,
    Trust,
    Verdict,
    WorkloadResult,
    verdict_key,
)

DEVICE = "some-cpu-1-core"
ENVIRONMENT = Environment(DEVICE, "cpu-1", "tsc", "namespaces", Trust.HOST, {"torch": "2.13.0"})
COORDINATION = (Path(__file__).parent.parent / "COORDINATION.md").read_bytes()
FILES = {"definition.json": b"{}", "COORDINATION.md": COORDINATION}
SEED = {"solution.toml": b"", "kernel.cpp": b"// seed"}


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    (tmp_path / "COORDINATION.md").touch()
    (tmp_path / "swarm.toml").touch()
    return RunPaths(tmp_path, "local")


@pytest.fixture
def hub(paths: RunPaths) -> Iterator[Hub]:
    with Hub(paths) as hub:
        hub.ensure()
        hub.ensure_epoch("p", FILES, SEED, "tests")
        yield hub


@pytest.fixture
def ledger(paths: RunPaths) -> Iterator[Ledger]:
    with Ledger(paths) as ledger:
        yield ledger


def judge(hub: Hub, ledger: Ledger, commit: str, time_us: float, at_s: float, problem: str = "p") -> Verdict:
    one = next(s for s in hub.commits(problem) if s.commit == commit)
    workloads = (WorkloadResult("w", Status.PASSED, time_us=time_us, t_sol_us=5.0),)
    verdict = Verdict(
        verdict_key(one.tree, one.epoch, DEVICE), problem, one.epoch, one.tree, commit, "cpp", JUDGE_VERSION,
        Status.PASSED, "", workloads, ENVIRONMENT, "seed", at_s, 1.0, 1.5,
    )  # fmt: skip
    assert ledger.record(verdict)
    return verdict


def win(hub: Hub, worker: str = "w1") -> tuple[str, str]:
    """Hand in a kernel and merge it; return the attempt and the merge."""
    branch = hub.assign("p", worker)
    attempt = hub.submit(worker, branch, SEED | {"kernel.cpp": b"// fast"}, None, "BLOCK 1 -> 8", {})
    message = format_message("Merge: BLOCK 1 -> 8", "", {"Speedup": "4.000", "Worker": worker})
    return attempt, hub.merge("p", attempt, hub.champions()["p"], message)


def test_reigns_are_the_first_parents_and_attempts_are_not(hub: Hub, ledger: Ledger) -> None:
    seed = hub.champions()["p"]
    attempt, merge = win(hub)
    judge(hub, ledger, seed, 80, at_s=1)
    judge(hub, ledger, attempt, 20, at_s=2)
    [history] = collect(hub, ledger, device=DEVICE, baselines={"p": {"w": 40.0}}).histories
    assert [reign.commit for reign in history.reigns] == [seed, merge]
    assert history.seed is not None and history.seed.time_us == pytest.approx(80)
    assert history.champion is not None and history.champion.time_us == pytest.approx(20)
    assert history.missing == ""


def test_other_devices_judges_and_epochs_do_not_count(hub: Hub, ledger: Ledger) -> None:
    verdict = judge(hub, ledger, hub.champions()["p"], 80, at_s=1)
    elsewhere = replace(ENVIRONMENT, device_model="another-cpu")
    ledger.record(replace(verdict, key="a" * 32, environment=elsewhere))
    ledger.record(replace(verdict, key="b" * 32, judge_version=JUDGE_VERSION + 1))
    ledger.record(replace(verdict, key="c" * 32, epoch="another"))
    [history] = collect(hub, ledger, device=DEVICE, baselines={}).histories
    assert history.verdicts == (verdict,)


def test_what_is_missing_is_a_warning(hub: Hub, ledger: Ledger, paths: RunPaths) -> None:
    assert "no verdict yet" in " ".join(collect(hub, ledger, device=DEVICE, baselines={}).warnings)
    judge(hub, ledger, hub.champions()["p"], 80, at_s=1)
    broken = paths.verdicts("p") / "broken.json"
    broken.write_text("{")
    warnings = " ".join(collect(hub, ledger, device=DEVICE, baselines={}).warnings)
    assert "swarm baseline p" in warnings
    assert str(broken) in warnings


def test_comparisons_are_counted_by_outcome(hub: Hub, ledger: Ledger) -> None:
    epoch = hub.epoch("p").hash
    for number, outcome in enumerate((Outcome.FASTER, Outcome.FASTER, Outcome.SAME), start=1):
        ledger.record(
            Comparison(f"0000000a-0000000b-{number}", "p", epoch, JUDGE_VERSION, "a", "b", outcome, "", (),
                       ENVIRONMENT, "seed", 1.0, 1.0)
        )  # fmt: skip
    collected = collect(hub, ledger, device=DEVICE, baselines={})
    assert collected.comparisons == {"p": {Outcome.FASTER: 2, Outcome.SAME: 1}}


def test_log_shows_seed_attempt_and_merge_with_what_was_measured(
    hub: Hub, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = hub.champions()["p"]
    attempt, merge = win(hub)
    judge(hub, ledger, seed, 80, at_s=1)
    judge(hub, ledger, attempt, 20, at_s=2)
    monkeypatch.chdir(hub.paths.root)
    assert cli.main(["log", "p", "--run", "local", "--json"]) == 0
    entries = {entry["commit"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert {c: e["kind"] for c, e in entries.items()} == {seed: "epoch", attempt: "attempt", merge: "merge"}
    assert entries[merge]["trailers"]["Speedup"] == "4.000"
    assert entries[attempt]["branch"] == "refs/heads/work/p/w1-1"
    assert (entries[attempt]["status"], entries[attempt]["time_us"]) == ("PASSED", pytest.approx(20))
    assert cli.main(["log", "p", "--run", "local", "--merges"]) == 0
    text = capsys.readouterr().out
    assert "Merge: BLOCK 1 -> 8" in text and attempt[:10] not in text


def test_log_of_an_unknown_problem_suggests_the_one_that_was_meant(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(hub.paths.root)
    assert cli.main(["log", "q", "--run", "local"]) == 1
    assert "no problem 'q'" in capsys.readouterr().err
    assert cli.main(["log", "p", "--run", "other"]) == 1
    assert "type: swarm run" in capsys.readouterr().err


def test_report_writes_scoreboard_page_and_bundle(
    hub: Hub, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = hub.champions()["p"]
    attempt, merge = win(hub)
    judge(hub, ledger, seed, 80, at_s=1)
    judge(hub, ledger, attempt, 20, at_s=2)
    paths, root = hub.paths, RunRoot(hub.paths.root)
    compiled = Contender("compile", {}, {}, "no C++ compiler")
    save_baseline(root, Baseline("p", DEVICE, "h", 1, 1.0, (Contender("eager", {"w": 40.0}, {}), compiled)))
    monkeypatch.chdir(paths.root)
    assert cli.main(["report", "--run", "local", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(paths.scoreboard_json.read_bytes())
    [row] = printed["problems"]
    assert (row["champion"], row["speedup"], row["speedup_over_seed"]) == (merge, 2.0, 4.0)
    assert "T_b without compile: no C++ compiler" in paths.scoreboard_md.read_text()
    assert "<svg" in paths.report_html.read_text()
    assert paths.hub_bundle.stat().st_size > 0
    assert cli.main(["results", "list", "--json"]) == 0
    [run] = json.loads(capsys.readouterr().out)
    assert (run["run"], run["verdicts"], run["speedup"], run["above_1x"]) == ("local", 2, 2.0, 1)
    assert score_of(root, hub, ledger, DEVICE, "p", merge) == pytest.approx(0.7)


def test_a_problem_marked_weak_when_its_epoch_began_counts_in_no_figure_of_the_run(
    hub: Hub, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.ensure_epoch("q", FILES | {"problem.toml": b'weak = true\nfamily = "softmax"\n'}, SEED, "tests")
    judge(hub, ledger, hub.champions()["p"], 80, at_s=1)
    judge(hub, ledger, hub.champions()["q"], 1, at_s=2, problem="q")
    for name in ("p", "q"):
        contender = Contender("eager", {"w": 160.0}, {})
        save_baseline(RunRoot(hub.paths.root), Baseline(name, DEVICE, "h", 1, 1.0, (contender,)))
    monkeypatch.chdir(hub.paths.root)
    assert cli.main(["report", "--run", "local"]) == 0
    out = capsys.readouterr().out
    assert "q (weak)" in out and "160.00×" in out
    assert "on 1 of 1 problems: geometric mean 2.00×" in out and "not counted: 1." in out
    assert cli.main(["results", "list", "--json"]) == 0
    [run] = json.loads(capsys.readouterr().out)
    assert (run["problems"], run["weak"], run["speedup"], run["above_1x"]) == (1, 1, 2.0, 1)


def test_report_prints_a_row_per_problem_and_its_warnings(
    hub: Hub, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judge(hub, ledger, hub.champions()["p"], 80, at_s=1)
    monkeypatch.chdir(hub.paths.root)
    assert cli.main(["report", "--run", "local"]) == 0
    out = capsys.readouterr().out
    assert "1 PASSED" in out
    assert "! p: no whole baseline was measured; type: swarm baseline p" in out
