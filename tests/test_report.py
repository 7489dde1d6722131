"""The scoreboard says what the records say, and the page is one file."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from swarm.report.history import History, Reign
from swarm.report.plots import progress_svg, scores_svg
from swarm.report.render import NOTHING, Page, cells, html, markdown, summary_line
from swarm.report.scoreboard import row, scoreboard, summary, to_json
from swarm.verdict import Environment, Outcome, Status, Trust, Verdict, WorkloadResult

ENVIRONMENT = Environment("some-cpu-1-core", "cpu-1", "tsc", "namespaces", Trust.HOST, {})


def verdict(tree: str, *times_us: float | None, at_s: float = 0.0, t_sol_us: float = 10.0) -> Verdict:
    workloads = tuple(
        WorkloadResult(f"w{i}", Status.PASSED, time_us=time_us, t_sol_us=t_sol_us)
        if time_us is not None
        else WorkloadResult(f"w{i}", Status.TIMEOUT, "took too long")
        for i, time_us in enumerate(times_us)
    )
    status = next((w.status for w in workloads if w.status is not Status.PASSED), Status.PASSED)
    return Verdict(
        f"key-{tree}", "p", "epoch", tree, f"c-{tree}", "cpp", 1, status, "", workloads, ENVIRONMENT, "seed",
        created_s=at_s, measured_s=1.0, total_s=1.5,
    )  # fmt: skip


def history(*verdicts: Verdict, baseline: tuple[float, ...] = (), name: str = "p") -> History:
    """The first verdict is the seed's; the last one is the champion's."""
    crowned = verdicts[:1] if len(verdicts) == 1 else (verdicts[0], verdicts[-1])
    reigns = tuple(Reign(v.commit, v.tree, v.created_s, f"make {v.tree}") for v in crowned)
    return History(name, reigns, verdicts, {f"w{i}": t for i, t in enumerate(baseline)})


def page(*histories: History) -> Page:
    board = scoreboard("local", "some-cpu-1-core", histories)
    return Page(
        board, histories, {"p": {Outcome.FASTER: 2}}, {"timer": "tsc"}, ["<b>doubt</b>"],
        progress_svg(histories), scores_svg(histories), "2026-01-01 00:00",
    )  # fmt: skip


def bars(svg: str) -> int:
    """Count the bars of a picture that are not empty."""
    outlines = re.findall(r'<path d="([^"]*)"[^>]*style="fill: #0b7285; stroke: #ffffff', svg)
    return sum(len(set(re.findall(r"[ML] \S+ (\S+)", outline))) > 1 for outline in outlines)


def test_figures_are_geometric_means_over_workloads() -> None:
    got = row(history(verdict("seed", 80, 200), verdict("best", 20, 50), baseline=(40, 100)))
    assert got.t_seed_us == pytest.approx((80 * 200) ** 0.5)
    assert got.t_b_us == pytest.approx((40 * 100) ** 0.5)
    assert got.t_best_us == pytest.approx((20 * 50) ** 0.5)
    assert (got.t_sol_us, got.speedup, got.speedup_over_seed) == pytest.approx((10, 2, 4))
    assert got.share_of_limit == pytest.approx(10 / (20 * 50) ** 0.5)
    assert got.sol_score == pytest.approx((1 / (1 + 10 / 30) + 1 / (1 + 40 / 90)) / 2)
    assert got.champion == "c-best"


def test_a_workload_without_work_has_a_score_and_no_part_in_the_mean_limit() -> None:
    best = verdict("best", 20, 50)
    empty = replace(best.workloads[1], t_sol_us=0.0)
    got = row(history(replace(best, workloads=(best.workloads[0], empty)), baseline=(40, 100)))
    assert got.t_sol_us == pytest.approx(10)
    assert got.share_of_limit == pytest.approx(10 / 20)
    assert got.sol_score == pytest.approx((1 / (1 + 10 / 30) + 1 / (1 + 50 / 100)) / 2)


def test_a_champion_at_the_baseline_scores_one_half() -> None:
    assert row(history(verdict("seed", 40, 40), baseline=(40, 40))).sol_score == pytest.approx(0.5)


def test_score_is_undefined_where_the_baseline_is_at_the_limit() -> None:
    got = row(history(verdict("seed", 40), baseline=(10,)))
    assert got.sol_score is None
    assert got.speedup == pytest.approx(0.25)
    assert cells(got)[7] == NOTHING


def test_without_a_baseline_there_is_no_speedup_but_there_is_one_over_the_seed() -> None:
    got = row(history(verdict("seed", 80), verdict("best", 20)))
    assert (got.t_b_us, got.speedup, got.sol_score) == (None, None, None)
    assert got.speedup_over_seed == pytest.approx(4)


def test_an_attempt_that_failed_at_its_first_workload_does_not_take_the_limit_of_the_others_away() -> None:
    best = verdict("best", 20, 50)
    first = WorkloadResult("w0", Status.TIMEOUT, "took too long", t_sol_us=10.0)
    failed = replace(best, tree="failed", status=Status.TIMEOUT, workloads=(first,))
    shown = replace(history(verdict("seed", 80, 200), best), verdicts=(best, failed))
    assert row(shown).share_of_limit == row(history(best)).share_of_limit is not None


def test_a_baseline_of_other_workloads_is_not_compared() -> None:
    assert row(history(verdict("seed", 80, 80), baseline=(40,))).speedup is None


def test_verdicts_are_counted_by_status_and_a_failed_champion_has_no_time() -> None:
    got = row(history(verdict("seed", 80), verdict("a", None), verdict("b", None), baseline=(40,)))
    assert got.verdicts == {"PASSED": 1, "TIMEOUT": 2}
    assert got.t_best_us is None


def test_a_problem_that_was_never_measured_has_a_row_of_nothing() -> None:
    got = row(History("p", (), (), {}))
    assert set(cells(got)[1:]) == {NOTHING}
    assert "No problem of 1" in summary_line(summary(scoreboard("r", "d", [History("p", (), (), {})])))


def test_json_has_exactly_the_agreed_fields() -> None:
    text = to_json(scoreboard("local", "d", [history(verdict("seed", 80), baseline=(40,))]))
    board = json.loads(text)
    assert list(board) == ["run", "device", "problems"]
    assert list(board["problems"][0]) == [
        "name", "t_seed_us", "t_b_us", "t_sol_us", "t_best_us", "speedup", "speedup_over_seed", "sol_score",
        "share_of_limit", "verdicts", "champion", "is_weak",
    ]  # fmt: skip


def test_summary_is_over_the_problems_that_have_a_speedup() -> None:
    histories = [
        history(verdict("seed", 80), baseline=(240,), name="a"),
        history(verdict("seed", 80), baseline=(60,), name="b"),
        history(verdict("seed", 80), name="c"),
    ]
    total = summary(scoreboard("r", "d", histories))
    assert (total.problems, total.compared, total.above_1x, total.above_2x) == (3, 2, 0.5, 0.5)
    assert total.geometric_mean == pytest.approx((3 * 0.75) ** 0.5)
    assert total.median == pytest.approx((3 + 0.75) / 2)


def test_a_weak_problem_is_listed_and_marked_but_counts_in_no_figure() -> None:
    strong = [history(verdict("seed", 80), baseline=(t,), name=name) for name, t in (("a", 240), ("b", 60))]
    weak = replace(history(verdict("seed", 80), verdict("best", 20), baseline=(800,), name="w"), is_weak=True)
    board = scoreboard("r", "d", [*strong, weak])
    assert [line.split("|")[1].strip() for line in markdown(board).splitlines() if "|" in line][2:] == [
        "a", "b", "w (weak)",
    ]  # fmt: skip
    assert board.problems[2].speedup == pytest.approx(40)
    total = summary(board)
    assert replace(total, weak=0) == summary(scoreboard("r", "d", strong))
    assert total.weak == 1
    assert "on 2 of 2 problems" in summary_line(total) and "not counted: 1." in summary_line(total)
    text = html(page(*strong, weak))
    assert "<td>w (weak)</td>" in text and "not counted: 1." in text
    assert "w (weak)" in scores_svg([*strong, weak])
    assert bars(scores_svg([*strong, weak])) == bars(scores_svg(strong)) == 2
    assert bars(scores_svg([*strong, replace(weak, is_weak=False)])) == 3


def test_a_run_of_weak_problems_alone_has_no_figures() -> None:
    weak = replace(history(verdict("seed", 80), baseline=(240,)), is_weak=True)
    total = summary(scoreboard("r", "d", [weak]))
    assert (total.problems, total.compared, total.geometric_mean, total.sol_score) == (0, 0, None, None)
    assert "not counted: 1." in summary_line(total)
    assert "p (weak)" in html(page(weak))


def test_markdown_has_a_row_per_problem_in_order_of_name() -> None:
    board = scoreboard("local", "d", [history(verdict("s", 80), name=name) for name in ("b", "a")])
    rows = [line for line in markdown(board, ["look here"]).splitlines() if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in rows] == ["problem", "---", "a", "b"]
    assert "- look here" in markdown(board, ["look here"])


def test_page_refers_to_nothing_outside_itself_and_escapes_text() -> None:
    text = html(page(history(verdict("seed", 80), verdict("<i>", 20, at_s=60), baseline=(40,))))
    assert not re.search(r"""(src|href)=["'](?!#)|<script|@import|url\((?!#)""", text)
    assert "&lt;b&gt;doubt" in text
    assert "make &lt;i&gt;" in text
    assert text.count("<svg") == 2


def test_pictures_show_every_problem_and_are_well_formed() -> None:
    histories = [
        history(verdict("seed", 80), verdict("x", 60, at_s=30), verdict("best", 20, at_s=60), name=name,
                baseline=(40,))
        for name in ("first", "second", "third", "fourth")
    ]  # fmt: skip
    for svg in (progress_svg(histories), scores_svg(histories)):
        ET.fromstring(svg)
        for one in histories:
            assert one.name in svg


def test_the_same_records_give_the_same_pictures() -> None:
    histories = [history(verdict("seed", 80), verdict("best", 20, at_s=60), baseline=(40,))]
    assert progress_svg(histories) == progress_svg(histories)
    assert scores_svg(histories) == scores_svg(histories)


def test_nothing_to_draw_draws_nothing() -> None:
    empty = [history(verdict("seed", None))]
    assert (progress_svg(empty), scores_svg(empty)) == ("", "")
    assert "Best so far" not in html(page(*empty))


def test_a_champion_without_verdict_is_shown_with_the_reason() -> None:
    gone = replace(history(verdict("seed", 80)), missing="the champion's verdict cannot be read")
    assert "cannot be read" in html(page(gone))
