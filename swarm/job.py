"""A Job: everything a judge needs, as bytes. No git, no shared disk on the judge's side."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Purpose(StrEnum):
    VERDICT = "verdict"
    COMPARISON = "comparison"


@dataclass(frozen=True, slots=True)
class Tree:
    """The files below solution/ of one commit: relative path -> content. `sha` is git's tree id."""

    sha: str
    commit: str
    files: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of work for a judge; `id` is the verdict's key or the comparison's id."""

    id: str
    purpose: Purpose
    problem: str
    epoch: str
    """Hash of the frozen files in `problem_files`."""
    problem_files: dict[str, bytes]
    """definition.json, workload*.jsonl, reference.py, problem.toml, COORDINATION.md, ... of the epoch."""
    candidate: Tree
    champion: Tree | None = None
    """Set for a comparison only."""

    def __post_init__(self) -> None:
        if (self.purpose is Purpose.COMPARISON) != (self.champion is not None):
            raise ValueError(f"job {self.id}: a comparison needs a champion, and nothing else has one")


def to_bytes(job: Job) -> bytes:
    return json.dumps(
        {
            "id": job.id,
            "purpose": job.purpose,
            "problem": job.problem,
            "epoch": job.epoch,
            "problem_files": encode_files(job.problem_files),
            "candidate": _tree(job.candidate),
            "champion": None if job.champion is None else _tree(job.champion),
        }
    ).encode()


def from_bytes(data: bytes) -> Job:
    raw = json.loads(data)

    def tree(item: dict[str, Any]) -> Tree:
        return Tree(str(item["sha"]), str(item["commit"]), decode_files(item["files"]))

    return Job(
        raw["id"],
        Purpose(raw["purpose"]),
        raw["problem"],
        raw["epoch"],
        decode_files(raw["problem_files"]),
        tree(raw["candidate"]),
        None if raw["champion"] is None else tree(raw["champion"]),
    )


def _tree(tree: Tree) -> dict[str, object]:
    return {"sha": tree.sha, "commit": tree.commit, "files": encode_files(tree.files)}


def encode_files(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return `files` as JSON can hold them."""
    return {path: base64.b64encode(content).decode() for path, content in files.items()}


def decode_files(files: Mapping[str, str]) -> dict[str, bytes]:
    return {path: base64.b64decode(content) for path, content in files.items()}
