"""The report's two pictures as inline SVG: progress over time, and the distribution of SOL scores."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from swarm.report.history import History
from swarm.report.scoreboard import limits_of, workload_scores
from swarm.verdict import geometric_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3
INK, FAINT, GRID = "#1f2933", "#9aa5b1", "#e4e7eb"
CHAMPION, ATTEMPT, BASELINE, LIMIT, SEED = "#0b7285", "#8cc5d0", "#d9480f", "#495057", "#adb5bd"
STYLE: dict[Any, Any] = {  # matplotlib types its keys as one literal of 300 names
    "svg.fonttype": "none",  # text stays text: selectable, and a third of the size
    "svg.hashsalt": "kernel-swarm",  # the same records give the same file
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # what the layout is computed with; the page's own font shows it
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "xtick.color": INK,
    "ytick.color": INK,
}


def progress_svg(histories: Sequence[History]) -> str:
    """Draw best-so-far over time, a panel per problem: attempts, the champion's steps, T_b and T_SOL."""
    import matplotlib as mpl  # half a second, only where a picture is drawn

    shown = [h for h in histories if h.passed]
    if not shown:
        return ""
    columns = min(COLUMNS, len(shown))
    rows = math.ceil(len(shown) / columns)
    with mpl.rc_context(STYLE):
        figure = _figure(10.5, 2.5 * rows + 0.45)
        panels = figure.subplots(rows, columns, squeeze=False)
        start_s = min(v.created_s for h in shown for v in h.passed)
        end_s = max(*(v.created_s for h in shown for v in h.verdicts), *(h.reigns[-1].since_s for h in shown))
        for axes, history in zip(panels.flat, shown, strict=False):
            _progress(axes, history, start_s, end_s)
        for axes in panels.flat[len(shown) :]:
            axes.set_axis_off()
        handles, labels = panels.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=4, frameon=False, handlelength=1.6)
        figure.supxlabel("minutes since the first verdict", fontsize=9)
        figure.supylabel("µs, geometric mean, log scale", fontsize=9)
        return _svg(figure)


def scores_svg(histories: Sequence[History]) -> str:
    """Draw the SOL score of every workload, champions against seeds; the bars leave weak problems out."""
    import matplotlib as mpl

    shown = [(h, workload_scores(h, h.champion), workload_scores(h, h.seed)) for h in histories]
    shown = [(h, best, seed) for h, best, seed in shown if best]
    if not shown:
        return ""
    with mpl.rc_context(STYLE):
        figure = _figure(10.5, 0.36 * len(shown) + 2.4)
        bars, strips = figure.subplots(
            2, 1, sharex=True, gridspec_kw={"height_ratios": [1.3, 0.36 * len(shown) + 0.2]}
        )
        values = [value for history, best, _ in shown if not history.is_weak for value in best.values()]
        bars.hist(values, bins=[i / 20 for i in range(21)], color=CHAMPION, edgecolor="white", linewidth=1)
        bars.set_ylabel("workloads")
        bars.yaxis.get_major_locator().set_params(integer=True)
        _strips(strips, shown)
        for axes in (bars, strips):
            axes.axvline(0.5, color=BASELINE, linestyle=(0, (4, 3)), linewidth=1)
            axes.axvline(1.0, color=LIMIT, linestyle=(0, (1, 2)), linewidth=1.2)
        bars.text(0.5, 1.02, " T_b", color=BASELINE, transform=bars.get_xaxis_transform(), ha="center")
        bars.text(1.0, 1.02, "T_SOL", color=LIMIT, transform=bars.get_xaxis_transform(), ha="center")
        strips.set_xlim(0, 1.04)
        strips.set_xlabel("S: 0.5 at the baseline, 1.0 at the limit")
        return _svg(figure)


def _progress(axes: Axes, history: History, start_s: float, end_s: float) -> None:
    def minutes(at_s: float) -> float:
        return max(0.0, at_s - start_s) / 60

    attempts = [(minutes(v.created_s), v.time_us) for v in history.passed if v.time_us is not None]
    axes.scatter(
        [x for x, _ in attempts],
        [y for _, y in attempts],
        s=11,
        color=ATTEMPT,
        linewidths=0,
        label="a passing attempt",
    )
    steps = [
        (minutes(reign.since_s), verdict.time_us)
        for reign in history.reigns
        if (verdict := history.verdict_of(reign.tree)) is not None and verdict.time_us is not None
    ]
    if steps:
        last = (minutes(end_s), steps[-1][1])
        axes.step(
            [x for x, _ in [*steps, last]],
            [y for _, y in [*steps, last]],
            where="post",
            color=CHAMPION,
            linewidth=1.8,
            label="champion",
        )
    lines = (
        ("T_b", BASELINE, (0, (4, 3)), list(history.baseline_us.values())),
        ("T_SOL", LIMIT, (0, (1, 2)), list(limits_of(history).values())),
    )
    for label, color, dashes, values in lines:
        if values:
            axes.axhline(geometric_mean(values), color=color, linestyle=dashes, linewidth=1.1, label=label)
    axes.set_yscale("log")
    axes.set_title(history.label)
    axes.set_xlim(left=0, right=max(minutes(end_s) * 1.02, 0.1))
    _plain_ticks(axes)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def _plain_ticks(axes: Axes) -> None:
    """Label a log axis with plain numbers, few of them, whatever part of a decade it covers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_ylim()
    decades = math.log10(high / low)
    subs = (1.0, 2.0, 3.0, 5.0, 7.0) if decades < 0.8 else (1.0, 2.0, 5.0) if decades < 2 else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _strips(axes: Axes, shown: Sequence[tuple[History, dict[str, float], dict[str, float]]]) -> None:
    for height, (_, best, seed) in enumerate(reversed(shown)):
        axes.axhline(height, color=GRID, linewidth=0.8, zorder=0)
        axes.scatter(
            list(seed.values()),
            [height] * len(seed),
            s=26,
            facecolors="white",
            edgecolors=SEED,
            linewidths=1.2,
            label="seed" if height == 0 else None,
        )
        axes.scatter(
            list(best.values()),
            [height] * len(best),
            s=30,
            color=CHAMPION,
            linewidths=0,
            label="champion" if height == 0 else None,
        )
    axes.set_yticks(range(len(shown)), [h.label for h, _, _ in reversed(shown)])
    axes.set_ylim(-0.6, len(shown) - 0.4)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="center left", frameon=False, bbox_to_anchor=(0.0, 1.06), ncols=2, handletextpad=0.2)


def _figure(width_in: float, height_in: float) -> Figure:
    from matplotlib.figure import Figure  # no pyplot: it keeps figures alive and looks for a display

    return Figure(figsize=(width_in, height_in), layout="constrained")


def _svg(figure: Figure) -> str:
    """Return the <svg> element alone, scaling with the page's width."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text[text.index("<svg") :], flags=re.DOTALL)
    head, body = text.split(">", 1)
    return re.sub(r' (?:width|height)="[^"]*"', "", head) + ">" + body
