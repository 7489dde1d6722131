"""What the judge says: a Verdict on one tree, a Comparison of two. Both are facts on disk for ever."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from swarm.errors import BadInput

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

JUDGE_VERSION = 2
"""Raised by hand when verdicts change meaning; older verdicts are then stale and never compared."""


class Status(StrEnum):
    """How a candidate ended; the first nine are SOL-ExecBench's."""

    PASSED = "PASSED"
    INCORRECT_SHAPE = "INCORRECT_SHAPE"
    INCORRECT_DTYPE = "INCORRECT_DTYPE"
    INCORRECT_NUMERICAL = "INCORRECT_NUMERICAL"
    COMPILE_ERROR = "COMPILE_ERROR"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    TIMEOUT = "TIMEOUT"
    REWARD_HACK = "REWARD_HACK"
    INVALID_REFERENCE = "INVALID_REFERENCE"
    INVALID_SOLUTION = "INVALID_SOLUTION"
    """The tree or its manifest breaks the protocol; nothing was run."""
    BELOW_SOL = "BELOW_SOL"
    """Faster than physics allows: quarantined for a person."""


class Outcome(StrEnum):
    """What a comparison found about the candidate, against the champion."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    UNDECIDED = "UNDECIDED"


class Trust(StrEnum):
    """How much of a result rests on the candidate's own host code, weakest first."""

    HOST = "host"
    REPLAYED = "replayed"
    DEVICE_ONLY = "device_only"


@dataclass(frozen=True, slots=True)
class Environment:
    """Where and how something was measured; needed to judge it again."""

    device_model: str
    device_uuid: str
    timer: str
    sandbox: str
    trust: Trust
    versions: dict[str, str]
    facts: dict[str, str | float | int] = field(default_factory=dict)
    """Clocks, power, temperature, throttle reasons, load: whatever the device tells."""
    trust_reason: str = ""
    """Why code on the host had to be believed, where that is all that the trust is."""


@dataclass(frozen=True, slots=True)
class WorkloadResult:
    """One workload of a verdict; without a time unless it passed (or was below the limit)."""

    uuid: str
    status: Status
    reason: str = ""
    time_us: float | None = None
    """Trimmed centre of the per-call device time."""
    ci_us: float | None = None
    """Half width of its 95 % interval."""
    calls: int = 0
    t_sol_us: float | None = None
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    matched_ratio: float | None = None
    clock: str = ""
    """Which of the environment's clocks gave the time."""
    flops: float | None = None
    """What T_SOL counts as computed; None where it cannot be known, or nobody looked."""

    def __post_init__(self) -> None:
        timed = self.status in (Status.PASSED, Status.BELOW_SOL)
        if timed != (self.time_us is not None):
            raise ValueError(f"workload {self.uuid}: status {self.status} with time_us {self.time_us}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judge's record for one solution tree alone; it passed only if every workload did."""

    key: str
    problem: str
    epoch: str
    tree: str
    commit: str
    """The first commit seen with this tree; others may share it."""
    language: str
    judge_version: int
    status: Status
    reason: str
    """One sentence; for a failure with the evidence."""
    workloads: tuple[WorkloadResult, ...]
    environment: Environment
    seed: str
    """The secret from which every input followed; published with the record."""
    created_s: float
    """Unix time at which the record was made."""
    measured_s: float
    """Seconds in which the device was held for this verdict."""
    total_s: float
    """Seconds from taking the job to the record, compile included."""
    log: str = ""
    """The tail of what the compiler or the candidate printed; data, never an instruction."""

    @property
    def time_us(self) -> float | None:
        """Geometric mean over workloads, None unless it passed."""
        if self.status is not Status.PASSED:
            return None
        return geometric_mean([w.time_us for w in self.workloads if w.time_us is not None])


@dataclass(frozen=True, slots=True)
class WorkloadRatio:
    """One workload of a comparison: champion time / candidate time with its interval."""

    uuid: str
    ratio: float
    low: float
    high: float
    quads: int
    clock: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The judge's record for two trees in one sitting. `ratio` above 1: the candidate is faster."""

    id: str
    problem: str
    epoch: str
    judge_version: int
    champion_tree: str
    candidate_tree: str
    outcome: Outcome
    reason: str
    workloads: tuple[WorkloadRatio, ...]
    environment: Environment
    seed: str
    created_s: float
    measured_s: float
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    failure: Status | None = None
    """How the candidate failed, if it did not hold in this sitting; the outcome is then UNDECIDED."""


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean of positive `values`; ValueError if there are none."""
    if not values or min(values) <= 0:
        raise ValueError(f"geometric mean of {values}")
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def verdict_key(tree: str, epoch: str, device_model: str, judge_version: int = JUDGE_VERSION) -> str:
    """Name a verdict by what it is about: solution tree, epoch, judge version, device model."""
    text = "\0".join((tree, epoch, str(judge_version), device_model))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def to_json(record: Verdict | Comparison) -> bytes:
    return (json.dumps(asdict(record), indent=1, allow_nan=False) + "\n").encode()


def verdict_from_json(data: bytes, where: str) -> Verdict:
    """Parse a verdict file; BadInput naming `where` and the field if it is not one."""
    return _parse(Verdict, data, where)


def comparison_from_json(data: bytes, where: str) -> Comparison:
    """Parse a comparison file; BadInput naming `where` and the field if it is not one."""
    return _parse(Comparison, data, where)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # 60 ms that importing the nouns should not cost

    return TypeAdapter(kind)


def _parse(kind: type[T], data: bytes, where: str) -> T:
    from pydantic import ValidationError

    try:
        adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type]  # a class is hashable
        return adapter.validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole file"
        raise BadInput(
            f"not a {kind.__name__.lower()}: {place}: {first['msg']}",
            where=where,
            remedy="delete the file to have it measured again",
        ) from None
