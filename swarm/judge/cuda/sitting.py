"""One workload on a GPU before and after each request; like the CPU's `judge.sitting`, a request at a time.

No copy of the inputs is kept: they are verified by making them again, before the reference reads them where
they lie, and once more after it did. Outputs are copied aside first, where no candidate reaches them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from swarm.judge import check
from swarm.judge.arena import ALIGNMENT, needed
from swarm.judge.cuda.contents import pool_bytes
from swarm.judge.cuda.kernels import CLEAN, Finding, Kernels, Pair, Pairs, Regions
from swarm.judge.cuda.memory import DeviceArena
from swarm.judge.cuda.slots import Slots, aligned
from swarm.judge.inputs import Draw, Scalar, seed_number
from swarm.judge.protocol import Evidence
from swarm.judge.reference import InvalidReference
from swarm.judge.sitting import (
    Call,
    buffer_sizes,
    changed_input,
    is_compared,
    where,
    wrote_outside,
)
from swarm.judge.slots import GUARD_BYTES, Buffer, shapes
from swarm.languages.protocol import Failure
from swarm.problem import Problem
from swarm.protocol import Tests
from swarm.verdict import Status
from swarm.workload import Workload

MAX_SLOTS = 16
SLOTS_BYTES = 2 << 30
"""Of slots in one request: more of a large workload's would only cost time to fill."""
SPARE, MAX_SPARE_BYTES = 4, 256 << 20
"""Room of an arena over what its slots need, for secret places: a quarter, up to so much."""
QUAD_CALLS, FEW_CALLS = (3, 4, 4, 5), (1, 1, 1, 2)
"""Of a request of a comparison: a slot more costs little, a request more 300 us; fewer if they are large."""
MOST_QUADS = 2
"""Times [tests] quads: a quad of a short kernel costs milliseconds, to be uncertain costs another sitting."""
SHARED, PRIVATE = "shared", "private"


class Reference(Protocol):
    """What a sitting asks of a problem's own code."""

    def map(self, name: str, arena: DeviceArena) -> None:
        """Let it see an arena under a name."""

    def make_inputs(
        self, arena: str, axes: Mapping[str, Scalar], seed: int, inputs: Sequence[Buffer | None]
    ) -> dict[str, Scalar]:
        """Let the problem's own entry point fill the input buffers; return the scalar inputs."""

    def expect_each(
        self,
        inputs_in: str,
        outputs_in: str,
        work: Sequence[tuple[Sequence[Buffer | Scalar], Sequence[Buffer]]],
    ) -> float:
        """Compute outputs (in the dtype they are compared in) from inputs; return the seconds of all."""


def max_slots(problem: Problem, workload: Workload) -> int:
    """Return how many slots a request for this workload may have."""
    one = needed(buffer_sizes(problem, workload), GUARD_BYTES)
    return max(1, min(MAX_SLOTS, SLOTS_BYTES // max(1, one)))


def shared_bytes(problem: Problem, workload: Workload) -> int:
    """Return the size of an arena in which the slots of one request find secret places."""
    least = needed(buffer_sizes(problem, workload), GUARD_BYTES) * max_slots(problem, workload)
    return least + min(least // SPARE, MAX_SPARE_BYTES) + (1 << 20)


def private_bytes(problem: Problem, workload: Workload) -> int:
    """Return the size of the memory for pools, and for a request's outputs and what is expected of them."""
    _, outputs = shapes(problem.definition, problem.definition.resolve(workload))
    kept = [size for shape in outputs for size in (shape.nbytes, shape.compared_nbytes)]
    sizes = [*pool_bytes(problem, workload), *kept * max_slots(problem, workload)]
    return sum(map(aligned, sizes)) + ALIGNMENT


class CudaSitting:
    """A workload, its secret inputs and its reference, for as long as one job looks at it."""

    def __init__(
        self,
        problem: Problem,
        workload: Workload,
        tests: Tests,
        reference: Reference,
        shared: DeviceArena,
        private: DeviceArena,
        kernels: Kernels,
        seed: str,
        throttled: Callable[[], str],
    ) -> None:
        """The arenas must have `shared_bytes` and `private_bytes` of the workload.

        `throttled` says why the times since its last call are worth nothing, if they are.
        """
        self.problem = problem
        self.workload = workload
        self.tests = tests
        self.evidence = Evidence()
        self.max_slots = max_slots(problem, workload)
        self.quad_calls = QUAD_CALLS if self.max_slots >= max(QUAD_CALLS) else FEW_CALLS
        self.most_quads = MOST_QUADS * tests.quads
        self._limits = problem.limits(workload, tests)
        self._reference = reference
        self._kernels = kernels
        self._seed = seed
        self._throttled = throttled
        self._rng = random.Random(f"{seed}/{workload.uuid}/choices")
        self._slots = Slots(problem, workload, seed, kernels, (shared, private), self.max_slots)
        self._filled = Regions(())
        """All buffers of the last request, to verify as they were filled."""
        self._calls: list[int] = []
        """The draws of the last request."""
        self._expected_of = [0] * self.max_slots
        """By call of a request: the draw whose outputs are expected now."""
        self._digests: dict[int, list[tuple[int, int]]] = {}
        """By draw: of the inputs that the problem's own code made."""
        self._reference_s = 0.0
        reference.map(SHARED, shared)
        reference.map(PRIVATE, private)

    def fill(self, count: int) -> list[Call]:
        """Fill `count` slots with new secret contents at new places."""
        self._digests.clear()
        calls = self._slots.draw(count)
        self._calls = [call.draw.number for call in calls]
        self._filled = Regions(
            [row for call in calls for row in (*self._slots.given(call), *self._slots.copied(call))]
        )
        self._kernels.fill(self._filled)
        return self._made(calls) if self._slots.is_custom else calls

    def renew(self, calls: Sequence[Call]) -> None:
        """Poison the outputs of `calls` again, for another runner to do the same work."""
        self._kernels.fill(Regions([row for call in calls for row in self._slots.copied(call)]))

    def wants_comparison(self, call: Call, done: int, least: int) -> bool:
        """Decide, after the call, whether it is compared; `done` of at least `least` calls are over."""
        return is_compared(call.draw, self.tests, self.evidence, self._reference_s, self._rng, done, least)

    def disturbance(self) -> str:
        """Say what made the times since the last fill worthless."""
        return self._throttled()

    def inspect(self, calls: Sequence[Call], fully: Sequence[bool]) -> Failure | None:
        """Return what is wrong after a request: guards and inputs always, outputs where `fully`."""
        findings = self._look(calls, fully)
        chosen = [call for call, is_full in zip(calls, fully, strict=True) if is_full]
        if findings.count(CLEAN) < len(findings):
            found = iter(findings)
            strange = []
            for call, is_full in zip(calls, fully, strict=True):
                inputs = [next(found) for _ in _buffers(call.inputs)]
                outputs = [next(found) for _ in call.outputs]
                failure = self._outside(call, [*inputs, *outputs]) or self._changed(call, inputs)
                if failure is not None:
                    return failure
                if not is_full and any(finding.is_strange for finding in outputs):
                    strange.append(call)
            if strange:  # look closely; nothing moved meanwhile, so the rest is as it was
                self._kernels.inspect(Regions([row for call in strange for row in self._slots.copied(call)]))
                chosen += strange
        return self._compare(chosen) if chosen else None

    def _look(self, calls: Sequence[Call], fully: Sequence[bool]) -> list[Finding]:
        if all(fully) and [call.draw.number for call in calls] == self._calls:
            return self._kernels.inspect(self._filled)
        rows: list[bytes] = []
        for call, is_full in zip(calls, fully, strict=True):
            rows += self._slots.given(call)
            rows += self._slots.copied(call) if is_full else self._slots.looked_at(call)
        return self._kernels.inspect(Regions(rows))

    def _outside(self, call: Call, findings: Sequence[Finding]) -> Failure | None:
        for buffer, finding in zip(call.buffers, findings, strict=True):
            if finding.outside is not None:
                return wrote_outside(finding.outside, buffer, where(self.workload, call.draw))
        return None

    def _changed(self, call: Call, findings: Sequence[Finding]) -> Failure | None:
        buffer = self._changed_buffer(call, findings)
        return None if buffer is None else changed_input(buffer, where(self.workload, call.draw))

    def _changed_buffer(self, call: Call, findings: Sequence[Finding]) -> Buffer | None:
        """Return the first input that is not what was put there."""
        buffers = _buffers(call.inputs)
        digests = self._digests.get(call.draw.number, [finding.digest for finding in findings])
        for buffer, finding, digest in zip(buffers, findings, digests, strict=True):
            if finding.changed is not None or finding.digest != digest:
                return buffer
        return None

    def _compare(self, calls: Sequence[Call]) -> Failure | None:
        """Compare the copied outputs of calls with what the reference makes of their inputs."""
        unknown = [call for call in calls if self._expected_of[self._slots.number(call)] != call.draw.number]
        if unknown:
            work = [(call.inputs, self._slots.expected[self._slots.number(call)]) for call in unknown]
            self._reference_s = self._reference.expect_each(SHARED, PRIVATE, work) / len(work)
        pairs = [pair for call in calls for pair in self._slots.pairs(call)]
        rows = [row for call in unknown for row in self._slots.given(call)]
        findings, comparisons = self._kernels.inspect_and_compare(
            Regions(rows) if rows else None, Pairs(pairs, self._limits)
        )
        self._check_inputs(unknown, findings)
        found = iter(zip(pairs, comparisons, strict=True))
        failure: Failure | None = None
        for call in calls:
            self.evidence.compared += 1
            self.evidence.seen.add(call.draw.spread)
            for _ in call.outputs:
                pair, comparison = next(found)
                self._check_reference(pair, comparison.invalid, call.draw)
                match = check.judge(
                    pair.shape.name, comparison.stats, pair.shape.dims, self._limits, self._values(pair)
                )
                self.evidence.add(match)
                if failure is None and not match.passed:
                    reason = f"{match.reason}{where(self.workload, call.draw)}"
                    failure = Failure(Status.INCORRECT_NUMERICAL, reason)
        return failure

    def _check_inputs(self, calls: Sequence[Call], findings: Sequence[Finding]) -> None:
        """Raise InvalidReference if the reference changed what it was to read."""
        found = iter(findings)
        for call in calls:
            changed = self._changed_buffer(call, [next(found) for _ in _buffers(call.inputs)])
            if changed is not None:
                raise InvalidReference(f"the reference changes its input {changed.shape.name}")
            self._expected_of[self._slots.number(call)] = call.draw.number

    def _check_reference(self, pair: Pair, invalid: int, draw: Draw) -> None:
        if invalid >= 0:
            value = self._kernels.expected_number(pair.expected, invalid, pair.shape.dtype)
            reason = check.no_answer(pair.shape.name, value)
            raise InvalidReference(f"{reason} for inputs of kind {draw.spread}")

    def _values(self, pair: Pair) -> check.Values:
        dtype = pair.shape.dtype

        def values(index: int) -> tuple[int | float, int | float]:
            return (
                self._kernels.number(pair.got, index, dtype),
                self._kernels.expected_number(pair.expected, index, dtype),
            )

        return values

    def _made(self, calls: Sequence[Call]) -> list[Call]:
        """Let the problem's own code make the inputs of a request; return it with their scalars."""
        made = []
        for call in calls:
            buffers = [item if isinstance(item, Buffer) else None for item in call.inputs]
            seed = seed_number(self._seed, f"call {call.draw.number}")
            scalars = self._reference.make_inputs(SHARED, self._slots.axes, seed, buffers)
            made.append(self._slots.made(call, scalars))
        rows = [row for call in calls for row in self._slots.given(call)]
        found = iter(self._kernels.inspect(Regions(rows)))
        for call in calls:
            self._digests[call.draw.number] = [next(found).digest for _ in _buffers(call.inputs)]
        return made


def _buffers(inputs: Sequence[Buffer | Scalar]) -> list[Buffer]:
    return [item for item in inputs if isinstance(item, Buffer)]
