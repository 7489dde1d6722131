"""workspace/<run>/run.json: how a run was started, for its roles and for `swarm status`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from swarm.durable import write_atomic
from swarm.errors import BadInput
from swarm.layout import RunPaths


@dataclass(frozen=True, slots=True)
class RunState:
    agent: str
    language: str
    workers: tuple[str, ...]
    problems: tuple[str, ...]
    started_s: float
    deadline_s: float


def save(paths: RunPaths, state: RunState) -> None:
    write_atomic(paths.state, json.dumps(asdict(state), indent=1).encode() + b"\n")


def load(paths: RunPaths) -> RunState:
    """Return how the run was started; BadInput if it never was, or the file is none."""
    try:
        raw = json.loads(paths.state.read_bytes())
        return RunState(
            str(raw["agent"]),
            str(raw["language"]),
            tuple(map(str, raw["workers"])),
            tuple(map(str, raw["problems"])),
            float(raw["started_s"]),
            float(raw["deadline_s"]),
        )
    except FileNotFoundError:
        raise BadInput(
            f"run {paths.run!r} was never started", where=str(paths.state), remedy="type: swarm run"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"not the state of a run: {error}",
            where=str(paths.state),
            remedy="delete it; swarm run writes it",
        ) from None
