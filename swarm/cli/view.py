"""What `swarm run` shows while it runs: a line per event, and in a terminal a table that stays below them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from swarm.board import Board
from swarm.cli.context import stderr
from swarm.cli.feed import Kind, News
from swarm.report.render import microseconds

STYLES = {Kind.CHAMPION: "bold green", Kind.COMPARISON: "cyan", Kind.VERDICT: ""}
SAID_EVERY_S = 30.0
"""Without a terminal: how often to say that it is still at work when nothing happened."""
WHAT_CHARS = 60


class View:
    """Prints to stderr, so that stdout holds the scoreboard alone."""

    def __init__(self, started_s: float, deadline_s: float, problems: Sequence[str]) -> None:
        self._console: Console = stderr()
        self._started_s = started_s
        self._deadline_s = deadline_s
        self._width = max(map(len, problems), default=10)
        self._said_s = time.time()
        self._board: Board | None = None
        self._measured = 0
        self._doing = "preparing"
        self._warned: set[str] = set()
        # It refreshes by itself, so that the clock runs on while something takes long.
        self._live = (
            Live(console=self._console, get_renderable=self._render, refresh_per_second=2, transient=True)
            if self._console.is_terminal
            else None
        )

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str, style: str = "") -> None:
        """Print one line with the time since the start."""
        self._said_s = time.time()
        line = Text(f"{self._clock()}  ", style="dim")
        line.append(text, style=style or "default")
        self._console.print(line, soft_wrap=True)

    def warn(self, text: str) -> None:
        """Say something that is wrong, once."""
        if text not in self._warned:
            self._warned.add(text)
            self.say(text, "yellow")

    def tell(self, news: News) -> None:
        """Print one piece of news."""
        self._said_s = time.time()
        line = Text(f"{self._clock()}  ", style="dim")
        line.append(f"{news.problem:<{self._width}}  {news.worker:<4}")
        line.append(f"{_cut(news.what):<{WHAT_CHARS}}  ")
        time_us = f"  {microseconds(news.time_us)} µs" if news.time_us is not None else ""
        style = STYLES[news.kind] if news.is_good else "yellow" if news.kind is Kind.VERDICT else "dim"
        line.append(f"{news.result}{time_us}", style=style)
        self._console.print(line, soft_wrap=True)

    def show(self, board: Board | None, measured: int, doing: str) -> None:
        """Keep what the table shows; without a terminal say a line now and then."""
        self._board, self._measured, self._doing = board, measured, doing
        if self._live is None and time.time() - self._said_s >= SAID_EVERY_S:
            self.say(f"{measured} verdicts; {doing}")

    def _render(self) -> Group:
        tables = [_table(self._board)] if self._board else []
        return Group(*tables, self._footer(self._measured, self._doing))

    def _footer(self, measured: int, doing: str) -> Table:
        now_s = time.time()
        grid = Table.grid(padding=(0, 2))
        total = max(1.0, self._deadline_s - self._started_s)
        left_s = max(0, round(self._deadline_s - now_s))
        grid.add_row(
            ProgressBar(total=total, completed=min(total, now_s - self._started_s), width=30),
            f"{left_s // 60}:{left_s % 60:02d} left",
            f"{measured} verdicts",
            doing,
        )
        return grid

    def _clock(self) -> str:
        passed = max(0, int(time.time() - self._started_s))
        return f"{passed // 60:02d}:{passed % 60:02d}"


def _table(board: Board) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("problem", "state", "champion"):
        table.add_column(heading)
    for heading in ("µs", "T_SOL µs", "verdicts", "passed", "merges", "workers"):
        table.add_column(heading, justify="right")
    for row in board.problems:
        table.add_row(
            row.problem,
            row.state,
            row.champion[:10],
            microseconds(row.time_us),
            microseconds(row.t_sol_us),
            *map(str, (row.verdicts, row.passed, row.merges, row.workers)),
        )
    return table


def _cut(text: str) -> str:
    return text if len(text) <= WHAT_CHARS else text[: WHAT_CHARS - 1] + "…"
