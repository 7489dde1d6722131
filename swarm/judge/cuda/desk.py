"""What the judge of one GPU keeps between jobs: context, arenas, warm references, started runners."""

from __future__ import annotations

import os
import platform
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from swarm import sandbox
from swarm.definition import DType
from swarm.device import Device
from swarm.errors import Refused
from swarm.judge.build import Built, Frozen
from swarm.judge.compare import Quads, SideFailure
from swarm.judge.cuda import replay
from swarm.judge.cuda.clocks import Clocks
from swarm.judge.cuda.contents import PATTERN, region
from swarm.judge.cuda.driver import Context, call
from swarm.judge.cuda.health import GpuClock, Health
from swarm.judge.cuda.kernels import Kernels, Regions
from swarm.judge.cuda.memory import DeviceArena, sized
from swarm.judge.cuda.pair import disagreement, pair
from swarm.judge.cuda.quiet import Quiet
from swarm.judge.cuda.reference import CudaReferences
from swarm.judge.cuda.replay_tape import Unreplayable
from swarm.judge.cuda.runner import CudaControl, CudaRunner
from swarm.judge.cuda.sitting import CudaSitting, private_bytes, shared_bytes
from swarm.judge.cuda.spares import Host, Spares
from swarm.judge.cuda.wire import Clock
from swarm.judge.reference import InvalidReference, Reference, input_specs
from swarm.judge.slots import room_for
from swarm.languages.protocol import Kind
from swarm.problem import Problem
from swarm.verdict import Trust
from swarm.workload import Workload

WAKE_S, WAKE_BYTES, WAKE_FILLS = 0.2, 256 << 20, 16
"""How long an idle GPU is woken at the most; a GPU at its power limit never reaches its highest clock."""
READY = 2
"""Runners of a kind that wait for the next jobs: the one that replaces another is not ready at once."""


class CudaDesk:
    """Made once per judge. All that measures on this GPU goes through its lock, which the judge holds."""

    floor_noise = 0.0
    timer = (
        "CUPTI activity records, or CUDA events where CUPTI would tax long kernels; each workload says which"
    )

    def __init__(self, device: Device, cache: Path) -> None:
        os.sched_setaffinity(0, device.cores)
        torch.set_num_threads(1)
        self.device = device
        self.cache = cache
        self.context = Context(device.uuid)
        self.kernels = Kernels(self.context, cache)
        self.health = Health(device)
        self.quiet = Quiet(self.kernels.nothing)
        self.references = CudaReferences(device)
        self.spares = Spares(device, self.kernels.cubin)
        self._shared: DeviceArena | None = None
        self._private: DeviceArena | None = None
        self.clock_facts: dict[str, str | float | int] = {}
        """What the last table's calls were timed by."""
        self._controls: dict[Kind, CudaControl] = {}
        self._hosts = {Host.BARE}
        """Which kinds of runner the jobs so far needed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.references.close()
        self.spares.close()
        for control in self._controls.values():
            control.close()
        self._controls.clear()
        for arena in (self._shared, self._private):
            if arena is not None:
                arena.close()
        self._shared = self._private = None

    def warm_up(self) -> None:
        self.references.start()
        self.rest()

    def rest(self) -> None:
        """Start the runners that the next job will find ready; the device is not held by now."""
        for host in self._hosts:
            self.spares.refill(host, READY)

    def clock(self) -> GpuClock:
        return GpuClock(self.health, lambda: self.clock_facts)

    @contextmanager
    def table(
        self, epoch: str, rules: Frozen, workloads: Sequence[Workload], seed: str
    ) -> Iterator[CudaTable]:
        self.context.make_current()
        self.health.check()
        reference = self.reference(epoch, rules.problem)
        arenas = self.arenas(rules.problem, workloads)
        self._wake(arenas[0])
        with CudaTable(self, rules, reference, arenas, seed) as table:
            yield table

    def _wake(self, arena: DeviceArena) -> None:
        """Keep an idle GPU busy until its clocks are up, so that the first workload is not the slow one.

        It writes to memory that is filled again before anybody reads it.
        """
        nbytes = min(arena.size, WAKE_BYTES) // 2
        row = region(DType.BFLOAT16, arena.address + nbytes // 2, nbytes // 4, kind=PATTERN)
        work = Regions([row] * WAKE_FILLS)
        deadline = time.monotonic() + WAKE_S
        self.kernels.fill(work)
        while not self.health.is_at_speed() and time.monotonic() < deadline:
            self.kernels.fill(work)

    def reference(self, epoch: str, problem: Problem) -> Reference:
        return self.references.answering(epoch, problem)

    def drop(self, epoch: str, error: InvalidReference) -> None:
        self.references.drop(epoch, error)

    def trust(self, kind: Kind) -> Trust:
        """Return DEVICE_ONLY for plans: our code launches them, and none of theirs runs on the host."""
        return Trust.DEVICE_ONLY if kind is Kind.PLAN else Trust.HOST

    def needs(self, host: Host, count: int) -> None:
        """Start `count` such runners now, and keep one ready from now on."""
        self._hosts.add(host)
        self.spares.refill(host, count)

    def control(self, kind: Kind) -> CudaControl:
        """Return the empty candidate in a runner of this kind; started when it is first asked."""
        if kind not in self._controls:
            self._controls[kind] = CudaControl(kind, self.spares)
        return self._controls[kind]

    def versions(self) -> dict[str, str]:
        return self._versions

    @cached_property
    def _versions(self) -> dict[str, str]:
        number = int(call("cuDriverGetVersion"))
        return {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda driver": f"{number // 1000}.{number % 1000 // 10}",
            "driver": self.health.driver,
            "kernel": platform.release(),
        }

    def arenas(self, problem: Problem, workloads: Sequence[Workload]) -> tuple[DeviceArena, DeviceArena]:
        """Return (what runners see, what only the reference sees), large enough for `workloads`."""
        shared = max(shared_bytes(problem, w) for w in workloads)
        private = max(private_bytes(problem, w) for w in workloads)
        with room_for(problem, workloads):
            self._shared = sized(self.context, self._shared, shared)
            self._private = sized(self.context, self._private, private)
        return self._shared, self._private


class CudaTable:
    """One problem's reference and memory, while the GPU is held."""

    def __init__(
        self,
        desk: CudaDesk,
        rules: Frozen,
        reference: Reference,
        arenas: tuple[DeviceArena, DeviceArena],
        seed: str,
    ) -> None:
        self._desk = desk
        self._rules = rules
        self._reference = reference
        self._shared, self._private = arenas
        self._seed = seed
        self._is_dirty = rules.protocol.tests.flush == "dirty"
        # flush = "dirty" is there to reproduce SOL-ExecBench's figures, which CUPTI times at any length.
        self._clocks = Clocks(Clock.CUPTI if self._is_dirty else None)
        self._sides: list[Built] = []
        self._controls: list[CudaControl] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._desk.clock_facts = self._clocks.facts()
        for control in self._controls:
            control.leave()

    def prepare(self, built: Sequence[Built]) -> None:
        for host in {Host.of(one.artifact.kind) for one in built}:
            self._desk.needs(host, sum(Host.of(one.artifact.kind) is host for one in built))

    def sitting(self, workload: Workload) -> CudaSitting:
        return CudaSitting(
            self._rules.problem,
            workload,
            self._rules.protocol.tests,
            self._reference,
            self._shared,
            self._private,
            self._desk.kernels,
            self._seed,
            self._disturbance,
        )

    def runner(self, built: Built, timeout_s: float | None = None) -> CudaRunner:
        rules = self._rules.protocol.rules
        return CudaRunner(
            built.artifact,
            self._rules.problem,
            self._shared,
            self._desk.spares,
            self._clocks,
            memory_bytes=int(rules.memory_gib * sandbox.GIB),
            timeout_s=rules.run_timeout_s if timeout_s is None else timeout_s,
            dirty=self._is_dirty,
            side=self._side(built),
            before=self._before,
            once_closed=self._desk.health.wait_until_gone,
        )

    def replay(self, built: Built, workloads: Sequence[Workload]) -> Built | str:
        """Have a tree with code on the host recorded, in a process that nothing is timed in."""
        if built.artifact.kind is Kind.PLAN:
            return ""
        if built.artifact.returns_outputs:
            return "it returns its outputs, and they are copied outside of its time"
        desk, host = self._desk, Host.of(built.artifact.kind)
        rules = self._rules.protocol.rules
        try:
            with replay.RecordingRunner(
                built.artifact,
                self._rules.problem,
                self._shared,
                desk.spares,
                Clocks(),
                memory_bytes=int(rules.memory_gib * sandbox.GIB),
                timeout_s=rules.run_timeout_s,
                side=None,
                once_closed=desk.health.wait_until_gone,
                process=desk.spares.recorder(host, replay.shim(desk.cache)),
            ) as runner:
                tape = replay.record(runner, self._rules.problem, [self.sitting(w) for w in workloads])
        except (Unreplayable, Refused) as error:
            return str(error)
        return Built(built.manifest, replay.artifact_of(tape, desk.cache), replay_of=built)

    def control(self, built: Built) -> CudaControl | None:
        """Return None for a plan: its runner holds no code of the candidate's."""
        if built.artifact.kind is Kind.PLAN:
            return None
        rules = self._rules.protocol
        control = self._desk.control(built.artifact.kind).at(
            self._rules.problem,
            self._shared,
            self._clocks,
            dirty=self._is_dirty,
            timeout_s=rules.rules.run_timeout_s,
            before=self._before,
        )
        self._controls.append(control)
        return control

    def doubt(
        self, built: Sequence[Built], workload: Workload, quads: Quads, rng: random.Random
    ) -> str | SideFailure:
        """Where CUPTI may tax one side more, ask events in one process that holds both plans."""
        definition = self._rules.problem.definition
        sizes = definition.resolve(workload)
        axes = {name: sizes[name] for name in definition.runtime_axes}
        if not self._clocks.doubts(axes) or any(one.artifact.kind is not Kind.PLAN for one in built):
            return ""
        rules = self._rules.protocol.rules
        with ExitStack() as stack:
            callers = pair(
                (built[0].artifact, built[1].artifact),
                self._rules.problem,
                self._shared,
                self._desk.spares,
                memory_bytes=int(rules.memory_gib * sandbox.GIB),
                timeout_s=rules.run_timeout_s,
                dirty=self._is_dirty,
            )
            for caller in callers:
                stack.enter_context(caller)
            return disagreement(self.sitting(workload), callers, quads, rng)

    def flops(self, workload: Workload) -> float:
        return sum(self._reference.flops(input_specs(self._rules.problem.definition, workload)).values())

    def _before(self) -> None:
        """Wait until nobody works on the GPU any more, if there is one whose code on the host may have."""
        if self._controls:
            self._desk.quiet.wait()

    def _disturbance(self) -> str:
        """Say what makes the times since the last call of this worthless."""
        return self._clocks.spoiled() or self._desk.health.throttled()

    def _side(self, built: Built) -> int:
        """Return 0 for the first tree that was run here, itself or its replay, 1 for the other one."""
        tree = built.replay_of or built
        if not any(tree is one for one in self._sides):
            self._sides.append(tree)
        return next(index for index, one in enumerate(self._sides) if one is tree)
