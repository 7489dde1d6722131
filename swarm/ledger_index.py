"""A SQLite cache of the result files: light rows for the planner. It can be deleted at any time.

A folder whose time has not changed is not looked into; in one that changed only files whose name, time and
size are new are read. A broken file keeps a row, so that nobody measures again what cannot be recorded.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from swarm.durable import sweep
from swarm.errors import BadInput, Refused
from swarm.layout import RunPaths
from swarm.stamps import settled_stamp, stamp
from swarm.verdict import Outcome, Status, comparison_from_json, geometric_mean, verdict_from_json

SCHEMA = 1
"""Raised by hand when a row changes; an index of another schema is built anew."""
BUSY_TIMEOUT_S = 30.0

_ENVIRONMENT = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
}
"""What the disk or another process does to us, as opposed to our own mistakes."""


class VerdictFact(NamedTuple):  # tuples, because ten thousand are loaded for one decision
    """What the planner needs of a verdict. Status None: the file is broken and only its name is known."""

    problem: str
    key: str
    status: Status | None
    time_us: float | None = None
    t_sol_us: float | None = None
    """Geometric mean over workloads, None if a workload has none."""
    tree: str = ""
    commit: str = ""
    epoch: str = ""
    language: str = ""
    device_model: str = ""
    judge_version: int = 0
    created_s: float = 0.0
    measured_s: float = 0.0


class ComparisonFact(NamedTuple):
    """What the planner needs of a comparison. Outcome None: the file is broken."""

    problem: str
    id: str
    outcome: Outcome | None
    ratio: float | None = None
    champion_tree: str = ""
    candidate_tree: str = ""
    epoch: str = ""
    device_model: str = ""
    judge_version: int = 0
    created_s: float = 0.0
    measured_s: float = 0.0


F = TypeVar("F", bound=VerdictFact | ComparisonFact)


@dataclass(frozen=True, slots=True)
class _Kind(Generic[F]):
    table: str
    folder: Callable[[RunPaths, str], Path]
    read: Callable[[bytes, str, str], F]
    """Content, file name, problem -> fact; BadInput if it is not one."""
    broken: Callable[[str, str], F]
    load: Callable[[tuple[Any, ...]], F]


class Index:
    """Rows of one run's result files, as of now."""

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._database: sqlite3.Connection | None = None
        self._memory: dict[tuple[str, str], tuple[int, list[Any]]] = {}

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def verdicts(self, problems: Iterable[str]) -> list[VerdictFact]:
        return self._rows(_VERDICTS, problems)

    def comparisons(self, problems: Iterable[str]) -> list[ComparisonFact]:
        return self._rows(_COMPARISONS, problems)

    def _rows(self, kind: _Kind[F], problems: Iterable[str]) -> list[F]:
        found: list[F] = []
        for problem in problems:
            folder = kind.folder(self._paths, problem)
            seen, rows = self._memory.get((kind.table, problem), (-1, []))
            if seen != stamp(folder):
                seen, rows = self._refresh(kind, problem, folder)
                self._memory[kind.table, problem] = seen, rows
            found.extend(rows)
        return found

    def _refresh(self, kind: _Kind[F], problem: str, folder: Path) -> tuple[int, list[F]]:
        try:
            return self._update(kind, problem, folder)
        except sqlite3.DatabaseError as error:
            self.close()
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # faults of the module itself have none
            if code in _ENVIRONMENT:
                raise Refused(
                    f"the index cannot be used: {error}",
                    where=str(self._paths.index),
                    remedy="free space or delete it; it is built again from the results",
                ) from error
            if code not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise
        for suffix in ("", "-wal", "-shm"):
            self._paths.index.with_name(self._paths.index.name + suffix).unlink(missing_ok=True)
        return self._update(kind, problem, folder)

    def _update(self, kind: _Kind[F], problem: str, folder: Path) -> tuple[int, list[F]]:
        database = self._open()
        now = settled_stamp(folder)
        place = (kind.table, problem)
        known = database.execute("SELECT stamp FROM folder WHERE kind = ? AND problem = ?", place).fetchone()
        if known is None or known[0] != now:
            self._scan(database, kind, problem, folder)
            database.execute("INSERT OR REPLACE INTO folder VALUES (?, ?, ?)", (*place, now))
        query = f"SELECT * FROM {kind.table} WHERE problem = ? ORDER BY created_s, name"
        return now, [kind.load(row[3:]) for row in database.execute(query, (problem,))]

    def _scan(self, database: sqlite3.Connection, kind: _Kind[F], problem: str, folder: Path) -> None:
        sweep(folder)
        query = f"SELECT name, time_ns, bytes FROM {kind.table} WHERE problem = ?"
        known = {name: (time_ns, size) for name, time_ns, size in database.execute(query, (problem,))}
        present, new = set(), []
        for path in folder.glob("*.json"):
            with suppress(FileNotFoundError):  # a person may delete a file at any time
                found = path.stat()
                if known.get(path.name) != (found.st_mtime_ns, found.st_size):
                    new.append((path.name, found.st_mtime_ns, found.st_size, *_read(kind, path, problem)))
                present.add(path.name)
        gone = [(problem, name) for name in known.keys() - present]
        with database:
            database.execute("BEGIN IMMEDIATE")
            database.executemany(f"DELETE FROM {kind.table} WHERE problem = ? AND name = ?", gone)
            if new:
                marks = ", ".join("?" * len(new[0]))
                database.executemany(f"INSERT OR REPLACE INTO {kind.table} VALUES ({marks})", new)

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            self._paths.index.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(self._paths.index, timeout=BUSY_TIMEOUT_S, isolation_level=None)
            self._database.execute("PRAGMA synchronous = NORMAL")
            if self._database.execute("PRAGMA user_version").fetchone()[0] != SCHEMA:
                self._create(self._database)
        return self._database

    def _create(self, database: sqlite3.Connection) -> None:
        columns = {
            "folder": "kind, problem, stamp, PRIMARY KEY (kind, problem)",
            "verdict": _columns(VerdictFact._fields),
            "comparison": _columns(ComparisonFact._fields),
        }
        database.execute("PRAGMA journal_mode = WAL")
        with database:
            database.execute("BEGIN IMMEDIATE")
            if database.execute("PRAGMA user_version").fetchone()[0] == SCHEMA:
                return  # another process was quicker
            for table, text in columns.items():
                database.execute(f"DROP TABLE IF EXISTS {table}")
                database.execute(f"CREATE TABLE {table} ({text}) WITHOUT ROWID")
            database.execute(f"PRAGMA user_version = {SCHEMA}")


def _columns(fields: tuple[str, ...]) -> str:
    quoted = ", ".join(f'"{field}"' for field in fields)  # "commit" is a word of SQL
    return f"name, time_ns, bytes, {quoted}, PRIMARY KEY (problem, name)"


def _read(kind: _Kind[F], path: Path, problem: str) -> F:
    try:
        return kind.read(path.read_bytes(), str(path), problem)
    except BadInput:
        return kind.broken(problem, path.stem)


def _verdict_fact(data: bytes, where: str, problem: str) -> VerdictFact:
    verdict = verdict_from_json(data, where)
    limits = [workload.t_sol_us for workload in verdict.workloads]
    known = [limit for limit in limits if limit is not None and limit > 0]
    return VerdictFact(
        problem=problem,
        key=Path(where).stem,
        status=verdict.status,
        time_us=verdict.time_us,
        t_sol_us=geometric_mean(known) if known and len(known) == len(limits) else None,
        tree=verdict.tree,
        commit=verdict.commit,
        epoch=verdict.epoch,
        language=verdict.language,
        device_model=verdict.environment.device_model,
        judge_version=verdict.judge_version,
        created_s=verdict.created_s,
        measured_s=verdict.measured_s,
    )


def _comparison_fact(data: bytes, where: str, problem: str) -> ComparisonFact:
    comparison = comparison_from_json(data, where)
    return ComparisonFact(
        problem=problem,
        id=Path(where).stem,
        outcome=comparison.outcome,
        ratio=comparison.ratio,
        champion_tree=comparison.champion_tree,
        candidate_tree=comparison.candidate_tree,
        epoch=comparison.epoch,
        device_model=comparison.environment.device_model,
        judge_version=comparison.judge_version,
        created_s=comparison.created_s,
        measured_s=comparison.measured_s,
    )


_STATUSES: dict[str | None, Status | None] = {None: None, **{str(status): status for status in Status}}
_OUTCOMES: dict[str | None, Outcome | None] = {None: None, **{str(outcome): outcome for outcome in Outcome}}

_VERDICTS = _Kind(
    table="verdict",
    folder=RunPaths.verdicts,
    read=_verdict_fact,
    broken=lambda problem, key: VerdictFact(problem, key, None),
    load=lambda row: VerdictFact(row[0], row[1], _STATUSES[row[2]], *row[3:]),
)
_COMPARISONS = _Kind(
    table="comparison",
    folder=RunPaths.comparisons,
    read=_comparison_fact,
    broken=lambda problem, id_: ComparisonFact(problem, id_, None),
    load=lambda row: ComparisonFact(row[0], row[1], _OUTCOMES[row[2]], *row[3:]),
)
