"""The board: who works on what and how each problem stands, as Markdown that code parses strictly.

Only the planner writes it. Cells hold identifiers and numbers, never text that an agent wrote. A table that
does not say what it must is an error naming its line; nothing is guessed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from swarm.durable import write_if_new
from swarm.errors import BadInput
from swarm.layout import NAME, WorkBranch, parse_ref

STATES = ("new", "active", "stalled", "exhausted", "waiting")
REMEDY = "correct the line, or type: swarm plan --rebuild"
BRANCH_PREFIX = "refs/heads/"


@dataclass(frozen=True, slots=True)
class ProblemRow:
    problem: str
    state: str
    champion: str
    """Commit at the head of the problem's branch."""
    time_us: float | None = None
    t_sol_us: float | None = None
    verdicts: int = 0
    passed: int = 0
    merges: int = 0
    workers: int = 0


@dataclass(frozen=True, slots=True)
class WorkerRow:
    worker: str
    state: str
    """`assigned` to the branch, or `free`: then `branch` is only the newest it had."""
    branch: WorkBranch | None = None
    since_s: float = 0.0
    """Unix time of the assignment."""


@dataclass(frozen=True, slots=True)
class Board:
    problems: tuple[ProblemRow, ...] = ()
    workers: tuple[WorkerRow, ...] = ()

    def problem(self, name: str) -> ProblemRow | None:
        return next((row for row in self.problems if row.problem == name), None)

    def worker(self, name: str) -> WorkerRow | None:
        return next((row for row in self.workers if row.worker == name), None)

    def assignment(self, worker: str) -> WorkBranch | None:
        row = self.worker(worker)
        return row.branch if row is not None and row.state == "assigned" else None


PROBLEM_COLUMNS = tuple(field.name for field in fields(ProblemRow))
REQUIRED_COLUMNS = ("problem", "state", "champion", "verdicts")
WORKER_COLUMNS = tuple(field.name for field in fields(WorkerRow))
WORKER_STATES = ("assigned", "free")


def read(
    path: Path, columns: Sequence[str] = PROBLEM_COLUMNS, states: Sequence[str] = STATES
) -> Board | None:
    """Return the board at `path`, None if there is none; BadInput naming the line if it is malformed."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput("not UTF-8", where=f"{path}:{line}", remedy=REMEDY) from None
    return parse(text, str(path), columns, states)


def write(path: Path, board: Board, columns: Sequence[str] = PROBLEM_COLUMNS) -> None:
    """Replace the board, unless it already says the same."""
    write_if_new(path, render(board, columns).encode())


def render(board: Board, columns: Sequence[str] = PROBLEM_COLUMNS) -> str:
    lines = ["# Board", "", "Written by the planner; read by people and by workers.", ""]
    lines += ["## Problems", "", *_table(columns, board.problems), ""]
    lines += ["## Workers", "", *_table(WORKER_COLUMNS, board.workers), ""]
    return "\n".join(lines)


def parse(
    text: str, where: str, columns: Sequence[str] = PROBLEM_COLUMNS, states: Sequence[str] = STATES
) -> Board:
    """Return the Board that `text` spells; BadInput with `where:line` for the first thing that is wrong."""
    _check_columns(columns, where)
    sections = _sections(text, where)
    problems = [
        _problem_row(cells, f"{where}:{line}", states)
        for line, cells in _rows(sections, "Problems", columns, where)
    ]
    workers = [
        _worker_row(cells, f"{where}:{line}")
        for line, cells in _rows(sections, "Workers", WORKER_COLUMNS, where)
    ]
    return Board(tuple(problems), tuple(workers))


def _table(columns: Sequence[str], rows: Sequence[ProblemRow | WorkerRow]) -> list[str]:
    head = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return head + ["| " + " | ".join(_cell(getattr(row, name)) for name in columns) + " |" for row in rows]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, WorkBranch):
        return value.ref.removeprefix(BRANCH_PREFIX)
    return repr(value) if isinstance(value, float) else str(value)


def _check_columns(columns: Sequence[str], where: str) -> None:
    for name in columns:
        if name not in PROBLEM_COLUMNS:
            allowed = ", ".join(PROBLEM_COLUMNS)
            raise BadInput(
                f"[board] column {name!r} is not known", where=where, remedy=f"choose from {allowed}"
            )
    for name in REQUIRED_COLUMNS:
        if name not in columns:
            raise BadInput(f"[board] columns lack {name!r}", where=where, remedy="add it")


def _sections(text: str, where: str) -> dict[str, list[tuple[int, str]]]:
    """Return the table lines below each `## ` heading with their line numbers."""
    found: dict[str, list[tuple[int, str]]] = {}
    current: list[tuple[int, str]] | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("## "):
            title = line[3:].strip()
            if title in found:
                raise BadInput(f"a second section {title!r}", where=f"{where}:{number}", remedy=REMEDY)
            current = found[title] = []
        elif line.strip() and current is not None:
            current.append((number, line))
    return found


def _rows(
    sections: dict[str, list[tuple[int, str]]], title: str, columns: Sequence[str], where: str
) -> Iterator[tuple[int, dict[str, str]]]:
    lines = sections.get(title)
    if not lines or len(lines) < 2:
        raise BadInput(f"no table below '## {title}'", where=where, remedy=REMEDY)
    (head_line, head), (rule_line, rule), *body = lines
    if tuple(_cells(head, f"{where}:{head_line}")) != tuple(columns):
        expected = " | ".join(columns)
        raise BadInput(f"the columns must be: {expected}", where=f"{where}:{head_line}", remedy=REMEDY)
    if rule != "|" + "---|" * len(columns):
        raise BadInput("the line below the columns is broken", where=f"{where}:{rule_line}", remedy=REMEDY)
    seen = set()
    for number, line in body:
        cells = _cells(line, f"{where}:{number}")
        if len(cells) != len(columns):
            what = f"{len(cells)} cells where {len(columns)} are needed"
            raise BadInput(what, where=f"{where}:{number}", remedy=REMEDY)
        if cells[0] in seen:
            raise BadInput(f"a second row for {cells[0]!r}", where=f"{where}:{number}", remedy=REMEDY)
        seen.add(cells[0])
        yield number, dict(zip(columns, cells, strict=True))


def _cells(line: str, where: str) -> list[str]:
    if not (line.startswith("| ") and line.endswith(" |")):
        raise BadInput(f"{line[:60]!r} is not a table row", where=where, remedy=REMEDY)
    return [cell.strip() for cell in line[2:-2].split(" | ")]


def _problem_row(cells: dict[str, str], where: str, states: Sequence[str]) -> ProblemRow:
    readers: dict[str, Callable[[str], Any]] = {
        "problem": _name,
        "state": lambda text: _choice(text, states),
        "champion": _commit,
        "time_us": _time,
        "t_sol_us": _time,
    }
    return ProblemRow(
        **{name: _read(readers.get(name, _count), text, name, where) for name, text in cells.items()}
    )


def _worker_row(cells: dict[str, str], where: str) -> WorkerRow:
    name: str = _read(_name, cells["worker"], "worker", where)
    state: str = _read(lambda text: _choice(text, WORKER_STATES), cells["state"], "state", where)
    branch: WorkBranch | None = _read(_branch, cells["branch"], "branch", where)
    since_s: float = _read(_seconds, cells["since_s"], "since_s", where)
    if branch is not None and branch.worker != name:
        raise BadInput(f"branch {cells['branch']!r} is not of worker {name!r}", where=where, remedy=REMEDY)
    if state == "assigned" and branch is None:
        raise BadInput(f"worker {name!r} is assigned to no branch", where=where, remedy=REMEDY)
    return WorkerRow(name, state, branch, since_s)


def _read(reader: Callable[[str], Any], text: str, column: str, where: str) -> Any:
    try:
        return reader(text)
    except ValueError as error:
        raise BadInput(f"{column} is {text[:60]!r}: {error}", where=where, remedy=REMEDY) from None


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError("not a name")
    return text


def _choice(text: str, allowed: Sequence[str]) -> str:
    if text not in allowed:
        raise ValueError(f"must be one of {', '.join(allowed)}")
    return text


def _commit(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text):
        raise ValueError("not a commit id")
    return text


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise ValueError("not a count")
    return int(text)


def _time(text: str) -> float | None:
    if text == "-":
        return None
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise ValueError("not a positive time")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError("not a time")
    return value


def _branch(text: str) -> WorkBranch | None:
    if text == "-":
        return None
    parsed = parse_ref(BRANCH_PREFIX + text)
    if not isinstance(parsed, WorkBranch):
        raise ValueError("not a work branch")
    return parsed
