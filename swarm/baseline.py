"""A problem's baseline times as stored in results/baselines/: what a speedup is held against.

Measuring them is the judge's work. A file belongs to a device model and to the problem's files as they were.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from swarm.durable import write_atomic
from swarm.errors import BadInput
from swarm.layout import RunRoot

NOT_IN_TIME = "not all was compiled and timed when the time for baselines was over"
"""The one reason that goes away by measuring again: what was compiled by then need not be any more."""


OPTIMISED = "pytorch"
"""How a contender is called that is the champion of a run in that language, before its commit."""


@dataclass(frozen=True, slots=True)
class Optimised:
    """A run's champion in PyTorch, to be timed beside what torch does by itself."""

    commit: str
    files: Mapping[str, bytes]
    """Below solution/."""

    @property
    def name(self) -> str:
        return f"{OPTIMISED} {self.commit[:10]}"


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to compute the problem: `eager`, `compile`, `baseline.py`, or a pytorch champion."""

    name: str
    times_us: dict[str, float]
    """Workload uuid -> time; without those where it failed."""
    versions: dict[str, str]
    missing: str = ""
    """Why there are no times, or not all: no compiler, an error, no time left."""

    @property
    def is_done(self) -> bool:
        """Say whether measuring on would bring no further time."""
        return self.missing != NOT_IN_TIME


@dataclass(frozen=True, slots=True)
class Baseline:
    problem: str
    device_model: str
    files: str
    """Hash of the problem's files that it was measured for; another hash means measure again."""
    judge_version: int
    created_s: float
    contenders: tuple[Contender, ...] = field(default=())

    @property
    def times_us(self) -> dict[str, float]:
        """Return T_b: the fastest contender per workload; nothing while one of them was only out of time.

        A speedup over what happened to be measured in time would flatter.
        """
        best: dict[str, float] = {}
        if not all(contender.is_done for contender in self.contenders):
            return best
        for contender in self.contenders:
            for uuid, time_us in contender.times_us.items():
                best[uuid] = min(time_us, best.get(uuid, time_us))
        return best

    @property
    def is_complete(self) -> bool:
        """Say whether measuring again would bring no further contender."""
        return bool(self.times_us)

    def kept(self, name: str, versions: dict[str, str]) -> Contender:
        """Return what an earlier sitting found of a contender; nothing if by other versions."""
        for contender in self.contenders:
            if contender.name == name and contender.versions == versions:
                return contender
        return Contender(name, {}, versions, NOT_IN_TIME)

    @property
    def optimised(self) -> tuple[Contender, ...]:
        """Return the champions of runs in PyTorch that were timed."""
        return tuple(one for one in self.contenders if one.name.startswith(f"{OPTIMISED} "))

    @property
    def remarks(self) -> list[str]:
        """Return what a reader of a speedup should know, a sentence per contender without times."""
        return [f"{self.problem}: T_b without {c.name}: {c.missing}" for c in self.contenders if c.missing]


def to_json(baseline: Baseline) -> bytes:
    return json.dumps(asdict(baseline), indent=1, allow_nan=False).encode() + b"\n"


def save_baseline(root: RunRoot, baseline: Baseline) -> None:
    """Store `baseline` where all runs of this root find it."""
    path = root.baseline(baseline.device_model, baseline.problem)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, to_json(baseline))


def load_baseline(root: RunRoot, device_model: str, problem: str) -> Baseline | None:
    """Return the stored baseline, None if there is none; BadInput naming the file if it is broken."""
    path = root.baseline(device_model, problem)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return parse_baseline(data, str(path), problem)


def parse_baseline(data: bytes, where: str, problem: str = "") -> Baseline:
    """Parse a baseline; BadInput naming `where` if it is none."""
    try:
        raw = json.loads(data)
        contenders = tuple(
            Contender(
                str(c["name"]),
                {str(uuid): float(time_us) for uuid, time_us in c["times_us"].items()},
                {str(name): str(version) for name, version in c["versions"].items()},
                str(c["missing"]),
            )
            for c in raw["contenders"]
        )
        return Baseline(
            str(raw["problem"]),
            str(raw["device_model"]),
            str(raw["files"]),
            int(raw["judge_version"]),
            float(raw["created_s"]),
            contenders,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        remedy = f"delete it; `{f'swarm baseline {problem}'.strip()}` measures it again"
        raise BadInput(f"not a baseline: {error!r}", where=where, remedy=remedy) from None
