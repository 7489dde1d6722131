"""A scoreboard as Markdown and as one self-contained HTML page. Everything shown comes in as an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from swarm.report.history import History
from swarm.report.scoreboard import Row, Scoreboard, Summary, summary
from swarm.settings import labelled
from swarm.verdict import Outcome

NOTHING = "–"
HEADINGS = (
    "problem",
    "seed µs",
    "T_b µs",
    "T_SOL µs",
    "best µs",
    "speedup",
    "over seed",
    "S",
    "of limit",
    "verdicts",
    "champion",
)
LEGEND = """\
Times are geometric means over a problem's workloads. T_b is the fastest baseline (eager, `torch.compile`, the
problem's own), T_SOL what the hardware's peaks allow. S = 1 / (1 + (T − T_SOL) / (T_b − T_SOL)): 0.5 at the
baseline, 1.0 at the limit, undefined (–) where T_b ≤ T_SOL. `of limit` is T_SOL / T. A problem is weak
where a wrong answer passes (`swarm problems lint`): it is listed, and no figure over problems counts it."""


@dataclass(frozen=True, slots=True)
class Page:
    """What report.html shows beside the scoreboard."""

    board: Scoreboard
    histories: Sequence[History]
    comparisons: Mapping[str, Mapping[Outcome, int]]
    """By problem: how many comparisons ended how."""
    conditions: Mapping[str, str]
    """How it was measured: timer, sandbox, versions, peaks."""
    warnings: Sequence[str]
    """What a reader should doubt: unreadable records, a missing baseline."""
    progress_svg: str
    scores_svg: str
    written: str
    """When, as text."""


def markdown(board: Scoreboard, warnings: Sequence[str] = ()) -> str:
    """Render `board` as the Markdown of scoreboard.md."""
    lines = [
        f"# Scoreboard of run {board.run}",
        "",
        f"Device: {board.device}",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + "|".join([" --- ", *[" ---: "] * 8, " --- ", " --- "]) + "|",
        *("| " + " | ".join(cells(r)) + " |" for r in board.problems),
        "",
        summary_line(summary(board)),
        "",
        LEGEND,
    ]
    if warnings:
        lines += ["", *(f"- {warning}" for warning in warnings)]
    return "\n".join(lines) + "\n"


def html(page: Page) -> str:
    """Render report.html: no script, no font and no image from anywhere else."""
    import jinja2  # 40 ms that printing a scoreboard should not cost

    source = resources.files("swarm.report").joinpath("template.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(labelled=labelled, us=microseconds, times=times, percent=percent, score=score)
    return environment.from_string(source).render(page=page, summary=summary(page.board), headings=HEADINGS)


def cells(row: Row) -> tuple[str, ...]:
    """Return the texts of one row, in the order of HEADINGS."""
    return (
        labelled(row.name, row.is_weak),
        microseconds(row.t_seed_us),
        microseconds(row.t_b_us),
        microseconds(row.t_sol_us),
        microseconds(row.t_best_us),
        times(row.speedup),
        times(row.speedup_over_seed),
        score(row.sol_score),
        percent(row.share_of_limit),
        ", ".join(f"{count} {status}" for status, count in row.verdicts.items()) or NOTHING,
        row.champion[:10] if row.champion else NOTHING,
    )


def summary_line(total: Summary) -> str:
    weak = f" Weak, and not counted: {total.weak}." if total.weak else ""
    if not total.compared:
        return f"No problem of {total.problems} has a champion and a baseline yet.{weak}"
    return (
        f"Speedup over T_b on {total.compared} of {total.problems} problems: geometric mean"
        f" {times(total.geometric_mean)}, median {times(total.median)}, {percent(total.above_1x)} above 1×,"
        f" {percent(total.above_2x)} above 2×; mean S {score(total.sol_score)},"
        f" {percent(total.share_of_limit)} of the limit.{weak}"
    )


def microseconds(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def quantity(amount: float, unit: str) -> str:
    """Write an amount of bytes or FLOPs with a decimal prefix."""
    for prefix in ("", "k", "M", "G"):
        if abs(amount) < 1e3:
            return f"{amount:.4g} {prefix}{unit}"
        amount /= 1e3
    return f"{amount:,.4g} T{unit}"


def times(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}×"


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.0f} %"


def score(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3f}"
