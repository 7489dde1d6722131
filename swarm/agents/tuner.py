"""The tuner: samples the champion's [tune] space, one commit per point. Needs no model and no key.

What it knows follows from git and the ledger alone: every attempt whose sources are the champion's, whoever
made it, is a point of the same space.
"""

from __future__ import annotations

from collections.abc import Mapping

from swarm.agents.protocol import Attempt, Desk, Progress
from swarm.agents.search import Known, Point, Space, Value, propose
from swarm.contents import files_hash
from swarm.errors import BadInput
from swarm.solution import load_manifest, with_params

IN_FLIGHT = 2
"""Commits without a verdict it may have: the next one is compiled while the device is busy with the first."""


class Tuner:
    name = "tuner"

    def __init__(self) -> None:
        self._points: dict[tuple[str, str], Point | None] = {}  # (family, tree) -> point; only saves time

    def step(self, desk: Desk) -> Progress:
        """Hand in the next point, unless enough of them are being measured or none is left."""
        attempts = desk.attempts()
        mine = sum(1 for attempt in attempts if attempt.branch == desk.branch and attempt.status is None)
        if mine >= IN_FLIGHT:
            return Progress.WAITING
        champion = desk.champion()
        space = space_of(champion)
        known = self._known(desk, attempts, champion, space)
        point = propose(space, known, seed=desk.branch.ref) if space.names else None
        if point is None:
            return Progress.WAITING if mine else Progress.EXHAUSTED
        params = space.params(point)
        desk.submit(with_params(champion, params), subject(load_manifest(champion).params, params))
        return Progress.SUBMITTED

    def _known(
        self, desk: Desk, attempts: list[Attempt], champion: Mapping[str, bytes], space: Space
    ) -> dict[Point, Known]:
        family = family_of(champion, space)
        known: dict[Point, Known] = {}
        for attempt in attempts:
            key = (family, attempt.tree)
            if key not in self._points:
                self._points[key] = _point_of(desk, attempt, family, space)
            point = self._points[key]
            if point is not None:
                known[point] = Known(attempt.time_us, is_pending=attempt.status is None)
        return known


def subject(before: Mapping[str, Value], after: Mapping[str, Value]) -> str:
    """Say what changes: 'BLOCK 64 -> 256, UNROLL 1 -> 8'."""
    changes = [f"{name} {before[name]} -> {after[name]}" for name in after if after[name] != before[name]]
    return ", ".join(changes) or "The same parameters again"


def space_of(files: Mapping[str, bytes]) -> Space:
    tune = load_manifest(files).tune
    return Space(tuple(tune), tuple(tuple(values) for values in tune.values()))


def family_of(files: Mapping[str, bytes], space: Space) -> str:
    """Name all trees that differ from `files` in nothing but the tuned parameters."""
    return files_hash(with_params(files, space.params((0,) * len(space.names))))


def _point_of(desk: Desk, attempt: Attempt, family: str, space: Space) -> Point | None:
    try:
        files = desk.solution(attempt)
        if family_of(files, space) != family:
            return None
        return space.point(load_manifest(files).params)
    except BadInput:  # somebody else's tree need not be a solution at all
        return None
