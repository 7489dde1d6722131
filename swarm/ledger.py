"""The record: one create-only file per verdict, comparison and refusal. What exists is never edited.

The index (swarm.ledger_index) answers what the planner asks all the time; the files alone are the truth.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from swarm.durable import create_only
from swarm.errors import BadInput
from swarm.layout import RunPaths
from swarm.ledger_index import ComparisonFact, Index, VerdictFact
from swarm.verdict import (
    Comparison,
    Verdict,
    comparison_from_json,
    to_json,
    verdict_from_json,
)

__all__ = ["ComparisonFact", "Ledger", "Refusal", "VerdictFact"]

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A commit that breaks the protocol; it says nothing about the solution tree in it."""

    problem: str
    commit: str
    reason: str
    created_s: float


class Ledger:
    """One run's results. Open one per process and thread; close it when done."""

    def __init__(self, paths: RunPaths) -> None:
        self.paths = paths
        self._index = Index(paths)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._index.close()

    def record(self, record: Verdict | Comparison) -> bool:
        """Put `record` on file; False if its key or id was on file already, which then stays as it is."""
        if isinstance(record, Verdict):
            path = self.paths.verdict(record.problem, record.key)
        else:
            path = self.paths.comparison(record.problem, record.id)
        return create_only(path, to_json(record))

    def verdict(self, problem: str, key: str) -> Verdict | None:
        """Return one verdict, None if there is none; BadInput naming the file if it is broken."""
        return _read(self.paths.verdict(problem, key), verdict_from_json)

    def verdicts(self, problem: str) -> list[Verdict]:
        """Return the readable verdicts of a problem, oldest first; `broken` names the others."""
        found = _read_all(self.paths.verdicts(problem), verdict_from_json)[0]
        return sorted(found, key=lambda verdict: verdict.created_s)

    def comparison(self, problem: str, comparison_id: str) -> Comparison | None:
        """Return one comparison, None if there is none; BadInput naming the file if it is broken."""
        return _read(self.paths.comparison(problem, comparison_id), comparison_from_json)

    def comparisons(self, problem: str) -> list[Comparison]:
        """Return the readable comparisons of a problem, oldest first; `broken` names the others."""
        found = _read_all(self.paths.comparisons(problem), comparison_from_json)[0]
        return sorted(found, key=lambda comparison: comparison.created_s)

    def refuse(self, problem: str, commit: str, reason: str) -> bool:
        """Put on file that `commit` breaks the protocol and why; False if that was on file already."""
        text = json.dumps({"problem": problem, "commit": commit, "reason": reason, "created_s": time.time()})
        return create_only(self.paths.refusals(problem) / f"{commit}.json", text.encode() + b"\n")

    def refusals(self, problem: str) -> dict[str, Refusal]:
        """Return commit -> refusal for the readable refusals of a problem; `broken` names the others."""
        return {refusal.commit: refusal for refusal in _read_all(self.paths.refusals(problem), _refusal)[0]}

    def broken(self, problem: str) -> list[BadInput]:
        """Return an error naming each result file of a problem that cannot be read."""
        return [
            *_read_all(self.paths.verdicts(problem), verdict_from_json)[1],
            *_read_all(self.paths.comparisons(problem), comparison_from_json)[1],
            *_read_all(self.paths.refusals(problem), _refusal)[1],
        ]

    def problems(self) -> list[str]:
        """Return the problems that have verdicts or comparisons on file."""
        folders = (self.paths.results / kind for kind in ("verdicts", "comparisons"))
        return sorted({path.name for folder in folders if folder.is_dir() for path in folder.iterdir()})

    # from the index: light rows, quick for ten thousand files

    def facts(self, problem: str | None = None) -> list[VerdictFact]:
        """Return a row per verdict, of one problem or of all; a broken file's row has status None."""
        return self._index.verdicts(self.problems() if problem is None else [problem])

    def comparison_facts(self, problem: str | None = None) -> list[ComparisonFact]:
        """Return a row per comparison, of one problem or of all; a broken file's row has outcome None."""
        return self._index.comparisons(self.problems() if problem is None else [problem])


def _read(path: Path, parse: Callable[[bytes, str], R]) -> R | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return parse(data, str(path))


def _read_all(folder: Path, parse: Callable[[bytes, str], R]) -> tuple[list[R], list[BadInput]]:
    found, broken = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            if (record := _read(path, parse)) is not None:
                found.append(record)
        except BadInput as error:
            broken.append(error)
    return found, broken


def _refusal(data: bytes, where: str) -> Refusal:
    try:
        raw = json.loads(data)
        return Refusal(str(raw["problem"]), str(raw["commit"]), str(raw["reason"]), float(raw["created_s"]))
    except (ValueError, KeyError, TypeError):
        raise BadInput("not a refusal", where=where, remedy="delete the file") from None
