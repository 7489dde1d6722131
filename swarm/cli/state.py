"""workspace/<run>/run.json: how a run was started, for its roles and for `swarm status`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from swarm.device import Device
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
    device_model: str
    """What its verdicts are about, wherever they are measured."""
    devices: tuple[Device, ...]
    """Those of this host that measure."""

    @property
    def device(self) -> str:
        """Return what `--device` would have to say to get these devices again."""
        return ",".join("cpu" if device.kind == "cpu" else device.uuid for device in self.devices)


def save(paths: RunPaths, state: RunState) -> None:
    write_atomic(paths.state, json.dumps(asdict(state), indent=1).encode() + b"\n")


def find(paths: RunPaths) -> RunState | None:
    """Return how the run was started; None if its roles were started one by one."""
    return load(paths) if paths.state.exists() else None


def before(paths: RunPaths) -> RunState | None:
    """Return how a run that is to go on was started; None if it is new, or nobody can tell."""
    try:
        return load(paths) if paths.hub.is_dir() else None
    except BadInput:
        return None


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
            str(raw["device_model"]),
            tuple(Device(**one | {"cores": tuple(map(int, one["cores"]))}) for one in raw["devices"]),
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
