"""What a judge needs of the device it sits at: a Desk, a Table laid for one job, a Sitting per workload.

Statistics, order and records are the same for every device and know only these; where memory lies, how
contents get there and which clock is read is a device's own business.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from swarm.device import Device
from swarm.judge.build import Built, Frozen
from swarm.judge.check import Match
from swarm.judge.inputs import Draw, Spread
from swarm.judge.reference import InvalidReference
from swarm.judge.runner import Slot
from swarm.languages.protocol import Failure, Kind
from swarm.protocol import Tests
from swarm.verdict import Trust
from swarm.workload import Workload

if TYPE_CHECKING:
    from swarm.judge.compare import Quads, SideFailure


@dataclass(slots=True)
class Evidence:
    """The worst that the compared calls of a workload showed."""

    compared: int = 0
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0
    matched_ratio: float = 1.0
    seen: set[Spread] = field(default_factory=set)

    def add(self, match: Match) -> None:
        self.max_abs_error = max(self.max_abs_error, match.max_abs_error)
        self.max_rel_error = max(self.max_rel_error, match.max_rel_error)
        self.matched_ratio = min(self.matched_ratio, match.matched_ratio)


class Call(Protocol):
    """One filled slot."""

    @property
    def draw(self) -> Draw: ...

    @property
    def slot(self) -> Slot: ...


CallT = TypeVar("CallT", bound=Call)


class Sitting(Protocol[CallT]):
    """One workload before and after its calls, for as long as one job looks at it."""

    tests: Tests
    evidence: Evidence
    max_slots: int

    @property
    def quad_calls(self) -> Sequence[int]:
        """How many calls a request of a comparison's quad has: one of these, by chance."""

    @property
    def most_quads(self) -> int:
        """How many quads a comparison may have where [tests] quads leave its ratio uncertain."""

    def fill(self, count: int) -> Sequence[CallT]:
        """Fill `count` slots with new secret contents at new places, and make them cold."""

    def renew(self, calls: Sequence[CallT]) -> None:
        """Poison the outputs of `calls` again, for another runner to do the same work."""

    def wants_comparison(self, call: CallT, done: int, least: int) -> bool:
        """Decide, after the call, whether it is compared; `done` of at least `least` calls are over."""

    def inspect(self, calls: Sequence[CallT], fully: Sequence[bool]) -> Failure | None:
        """Return what is wrong after one request: guards always, inputs and outputs where `fully`."""

    def disturbance(self) -> str:
        """Say what made the times since the last fill worthless (a throttled device), or nothing."""


class Caller(Protocol):
    """What executes calls: a runner, or a baseline in the reference's process."""

    wall_ns: int
    busy_ns: int
    """Processor time of the last request, of one core; 0 where the work is not a processor's."""

    @property
    def clock(self) -> str:
        """Name the clock that the last claims were read from."""

    def call(self, slots: Sequence[Slot]) -> list[int] | Failure: ...

    def linger(self, seconds: float) -> None:
        """Let it go on without a request, for what it may have left undone."""


class Candidate(Caller, AbstractContextManager["Candidate"], Protocol):
    """A runner with one candidate, closed by whoever opened it."""

    @property
    def log(self) -> str: ...


class Control(Protocol):
    """An empty candidate in a runner like the candidate's."""

    busy_us: float
    """What the last request took of a core beyond its claim."""

    def overhead_us(self, slots: Sequence[Slot]) -> float:
        """Make a request beside one of `slots`; return what it took by our clock beyond its claim."""


class Table(Protocol):
    """Where one job is measured, while its device is held."""

    def sitting(self, workload: Workload) -> Sitting[Any]: ...

    def prepare(self, built: Sequence[Built]) -> None:
        """Start what a runner for each of these will need, so that they need not wait for one another."""

    def runner(self, built: Built) -> Candidate: ...

    def replay(self, built: Built, workloads: Sequence[Workload]) -> Built | str:
        """Return what our own code runs in place of a tree's, or why there is no such thing.

        The reason is empty where nothing is to be replayed: none of the tree runs on the host, or all of it.
        """

    def control(self, built: Built) -> Control | None:
        """Return what bounds the claims of such a runner; None where no candidate's code could lie."""

    def doubt(
        self, built: Sequence[Built], workload: Workload, quads: Quads, rng: Random
    ) -> str | SideFailure:
        """Look once more where one clock may favour a side; say what contradicts a workload's quads."""

    def flops(self, workload: Workload) -> float:
        """Count what the reference computes in one call."""


class Clock(Protocol):
    """The seconds of one job, and whether the device was the judge's own meanwhile."""

    measured_s: float
    facts: dict[str, str | float | int]

    @property
    def total_s(self) -> float: ...

    def measuring(self) -> AbstractContextManager[None]: ...

    def check_alone(self, failure: Failure) -> None:
        """Raise Refused if `failure` may only mean that the device was shared: that is nobody's lie."""


class Desk(Protocol):
    """What the judge of one device keeps between jobs."""

    device: Device
    floor_noise: float
    """How far below T_SOL, relatively, the noise of the device's peaks may explain a time."""
    timer: str
    """The clocks, in words, for the record."""

    def warm_up(self) -> None:
        """Start what the first job would have to wait for."""

    def clock(self) -> Clock: ...

    def table(
        self, epoch: str, rules: Frozen, workloads: Sequence[Workload], seed: str
    ) -> AbstractContextManager[Table]: ...

    def rest(self) -> None:
        """Get ready for the next job; the device is not held by now."""

    def drop(self, epoch: str, error: InvalidReference) -> None:
        """Forget a reference that failed."""

    def trust(self, kind: Kind) -> Trust: ...

    def versions(self) -> dict[str, str]:
        """Return what a result depends on besides the device."""

    def close(self) -> None: ...
