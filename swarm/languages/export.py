"""From a solution/ folder in any GPU language to a Submission; host code is generated where there is none."""

from __future__ import annotations

from collections.abc import Mapping

from swarm.errors import BadInput
from swarm.exchange import completed, export_tree
from swarm.problem import Problem
from swarm.solution import Language, load_manifest
from swarm.submission import Exchange, Submission


def export_solution(
    files: Mapping[str, bytes],
    problem: Problem,
    chosen: Exchange,
    defaults: Exchange,
    arch: str | None,
    where: str,
) -> tuple[Submission, tuple[str, ...]]:
    """Return the submission, and what whoever submits it should know."""
    manifest = load_manifest(files, where)
    exchange = completed(manifest.exchange, chosen, defaults)
    if manifest.language is Language.CPP:
        raise BadInput(
            "language cpp is for CPUs", where=where, remedy="SOL-ExecBench takes kernels for GPUs only"
        )
    submission = export_tree(files, exchange, where)
    remarks = []
    if submission.definition != problem.definition.name:
        what = (
            f"it is for {submission.definition!r}, while {problem.name} defines {problem.definition.name!r}"
        )
        remarks.append(what)
    return submission, tuple(remarks)
