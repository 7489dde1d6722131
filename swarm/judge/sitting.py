"""One workload before and after each call: fills slots with secret contents, then looks at what came of them.

How often, in which order and against which clock calls are made is for `timing` and `compare`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from swarm.judge import check, elements
from swarm.judge.arena import ALIGNMENT, needed, place
from swarm.judge.inputs import Draw, Inputs, Scalar, seed_number
from swarm.judge.protocol import Evidence
from swarm.judge.reference import InvalidReference, Reference
from swarm.judge.runner import Slot
from swarm.judge.slots import GUARD_BYTES, Buffer, Memory, same_bytes, shapes
from swarm.languages.protocol import Failure
from swarm.problem import Problem
from swarm.protocol import Tests
from swarm.verdict import Status
from swarm.workload import Workload

MAX_SLOTS = 8
SLOTS_BYTES = 96 << 20
"""Of slots in one request: more of a large workload's would only cost time to fill."""
SPARE = 1.25
"""Room of an arena over what its slots need, for secret places."""
PRIVATE = "private"
SAMPLE, LEAST_VARIETY = 64, 8
"""Elements of an output by which it is known again, and how many of them differ where that says something."""
STALE = "; stale: it is the answer to an earlier call"
QUAD_CALLS = (1, 1, 1, 2)
"""Few, for to write contents takes longer than to work on them."""


@dataclass(frozen=True, slots=True)
class Call:
    """One filled slot."""

    draw: Draw
    inputs: tuple[Buffer | Scalar, ...]
    outputs: tuple[Buffer, ...]
    poison: tuple[int, ...]
    slot: Slot

    @property
    def buffers(self) -> list[Buffer]:
        return [*(b for b in self.inputs if isinstance(b, Buffer)), *self.outputs]


def max_slots(problem: Problem, workload: Workload) -> int:
    """Return how many slots a request for this workload may have."""
    return max(1, min(MAX_SLOTS, SLOTS_BYTES // max(1, needed(buffer_sizes(problem, workload), GUARD_BYTES))))


def shared_bytes(problem: Problem, workload: Workload) -> int:
    """Return the size of an arena in which the slots of one request find secret places."""
    one = needed(buffer_sizes(problem, workload), GUARD_BYTES)
    return int(one * max_slots(problem, workload) * SPARE) + (1 << 20)


def private_bytes(problem: Problem, workload: Workload) -> int:
    """Return the size of the memory for one call's inputs and expected outputs."""
    inputs, outputs = shapes(problem.definition, problem.definition.resolve(workload))
    sizes = [s.nbytes for s in inputs if s is not None] + [s.compared_nbytes for s in outputs]
    return needed(sizes, 0) + (1 << 16)


class Sitting:
    """A workload, its secret inputs and its reference, for as long as one job looks at it."""

    def __init__(
        self,
        problem: Problem,
        workload: Workload,
        tests: Tests,
        reference: Reference,
        shared: Memory,
        private: Memory,
        seed: str,
    ) -> None:
        self.problem = problem
        self.workload = workload
        self.tests = tests
        self.evidence = Evidence()
        self.max_slots = max_slots(problem, workload)
        self.quad_calls = QUAD_CALLS
        self.most_quads = tests.quads
        self._limits = problem.limits(workload, tests)
        self._reference = reference
        self._shared, self._private = shared, private
        self._seed = seed
        self._rng = random.Random(f"{seed}/{workload.uuid}/places")
        self._axes = problem.definition.resolve(workload)
        runtime = problem.definition.runtime_axes
        self._runtime_axes = {name: self._axes[name] for name in runtime}
        self._in, self._out = shapes(problem.definition, self._axes)
        self._lay_out_private()
        self._is_custom = workload.is_custom
        self._custom_scalars: tuple[Scalar | None, ...] = ()
        hints = problem.distributions(workload)
        self._source = Inputs(problem.definition, workload, seed, hints, problem.files)
        self._expected_of = 0
        self._reference_s = 0.0
        self._answers: set[tuple[float, ...]] = set()

    def fill(self, count: int) -> list[Call]:
        """Fill `count` slots with new secret contents at new places, and make them cold."""
        sizes = buffer_sizes(self.problem, self.workload)
        offsets = place(sizes * count, self._shared.arena.size, GUARD_BYTES, self._rng)
        calls = []
        for index in range(count):
            own = offsets[index * len(sizes) : (index + 1) * len(sizes)]
            calls.append(self._fill(own))
        self._chill(calls)
        return calls

    def renew(self, calls: Sequence[Call]) -> None:
        """Poison the outputs of `calls` again and make them cold, for another runner to do the same work."""
        for call in calls:
            self._poison(call)
        self._chill(calls)

    def _chill(self, calls: Sequence[Call]) -> None:
        buffers = [buffer for call in calls for buffer in call.buffers]
        self._shared.chill(buffers, dirty=self.tests.flush == "dirty")

    def wants_comparison(self, call: Call, done: int, least: int) -> bool:
        """Decide, after the call, whether it is compared; `done` of at least `least` calls are over."""
        return is_compared(call.draw, self.tests, self.evidence, self._reference_s, self._rng, done, least)

    def inspect(self, calls: Sequence[Call], fully: Sequence[bool]) -> Failure | None:
        """Return what is wrong after a request: guards always, inputs and outputs where `fully`."""
        for call, is_full in zip(calls, fully, strict=True):
            failure = self._inspect(call, fully=is_full)
            if failure is not None:
                return failure
        return None

    def disturbance(self) -> str:
        """Nothing: interference on a CPU adds to some samples, and trimming takes them."""
        return ""

    def _inspect(self, call: Call, *, fully: bool) -> Failure | None:
        for buffer in call.buffers:
            outside = self._shared.broken_guard(buffer)
            if outside is not None:
                return wrote_outside(outside, buffer, self._at(call))
        if not fully:
            return self._inspect_lightly(call)
        self._write_private(call)
        for mine, theirs in zip(self._private_in, call.inputs, strict=True):
            if mine is None or not isinstance(theirs, Buffer):
                continue
            if not same_bytes(self._private.flat(mine), self._shared.flat(theirs)):
                return changed_input(mine, self._at(call))
        self._expect(call)
        return self._compare(call)

    def _inspect_lightly(self, call: Call) -> Failure | None:
        """Find poison and NaN at the cost of one sum; a sum may also overflow, so then look closely."""
        for buffer in call.outputs:
            values = self._shared.flat(buffer)
            if buffer.shape.dtype.is_packed or not values.is_floating_point() or values.element_size() < 2:
                continue
            if not math.isfinite(float(values.sum(dtype=torch.float32))):
                self._write_private(call)
                self._expect(call)
                return self._compare(call)
        return None

    def _compare(self, call: Call) -> Failure | None:
        self.evidence.compared += 1
        self.evidence.seen.add(call.draw.spread)
        for mine, theirs, poison in zip(self._private_out, call.outputs, call.poison, strict=True):
            shape = theirs.shape
            match = check.compare(
                shape.name,
                self._shared.flat(theirs),
                self._private.compared(mine),
                shape.dtype,
                shape.dims,
                self._limits,
                poison,
            )
            self.evidence.add(match)
            if not match.passed:
                sample = self._sample(theirs)
                stale = STALE if sample in self._answers and len(set(sample)) > LEAST_VARIETY else ""
                return Failure(Status.INCORRECT_NUMERICAL, f"{match.reason}{stale}{self._at(call)}")
        self._answers.update(map(self._sample, call.outputs))
        return None

    def _sample(self, buffer: Buffer) -> tuple[float, ...]:
        """Return enough of an output to know it again."""
        bits = elements.as_bits(self._shared.flat(buffer))
        return tuple(bits[:: max(1, len(bits) // SAMPLE)].tolist())

    def _expect(self, call: Call) -> None:
        """Have the reference compute what `call` should have, unless that is what it computed last."""
        if self._expected_of == call.draw.number:
            return
        inputs: list[Buffer | Scalar] = [
            given if buffer is None and not isinstance(given, Buffer) else one_of(buffer, None)
            for buffer, given in zip(self._private_in, call.inputs, strict=True)
        ]
        self._reference.map(PRIVATE, self._private.arena)
        self._reference_s = self._reference.expect(PRIVATE, inputs, self._private_out)
        for buffer in self._private_out:
            problem = check.invalid_reference(buffer.shape.name, self._private.compared(buffer), self._limits)
            if problem:
                raise InvalidReference(f"{problem} for inputs of kind {call.draw.spread}")
        self._expected_of = call.draw.number

    def _fill(self, offsets: Sequence[int]) -> Call:
        """Write one slot whose buffers lie at `offsets`, tensor inputs first."""
        draw = self._source.draw()
        at = iter(offsets)
        buffers = [None if shape is None else Buffer(shape, next(at)) for shape in self._in]
        outputs = tuple(Buffer(shape, next(at)) for shape in self._out)
        if self._is_custom:
            self._write_custom(draw)
        for index, buffer in enumerate(buffers):
            if buffer is None:
                continue
            mine = self._private_in[index]
            if self._is_custom and mine is not None:
                self._shared.flat(buffer).copy_(self._private.flat(mine))
            else:
                self._source.write(draw, index, self._shared.flat(buffer))
        scalars = self._custom_scalars if self._is_custom else draw.scalars
        inputs = tuple(one_of(b, s) for b, s in zip(buffers, scalars, strict=True))
        call = Call(
            draw,
            inputs,
            outputs,
            tuple(elements.poison(shape.dtype, self._rng) for shape in self._out),
            Slot(
                tuple(i.offset if isinstance(i, Buffer) else i for i in inputs),
                tuple(buffer.offset for buffer in outputs),
                self._runtime_axes,
            ),
        )
        for buffer in call.buffers:
            self._shared.guard(buffer)
        self._poison(call)
        return call

    def _poison(self, call: Call) -> None:
        for buffer, pattern in zip(call.outputs, call.poison, strict=True):
            self._shared.poison(buffer, pattern)

    def _write_private(self, call: Call) -> None:
        """Write the inputs of `call` once more, where no candidate can reach them."""
        if self._is_custom:
            self._write_custom(call.draw)
            return
        for index, buffer in enumerate(self._private_in):
            if buffer is not None:
                self._source.write(call.draw, index, self._private.flat(buffer))

    def _write_custom(self, draw: Draw) -> None:
        self._reference.map(PRIVATE, self._private.arena)
        given = self._reference.make_inputs(
            PRIVATE, self._axes, seed_number(self._seed, f"call {draw.number}"), self._private_in
        )
        self._custom_scalars = tuple(given.get(name) for name in self.problem.definition.inputs)

    def _lay_out_private(self) -> None:
        at = 0
        self._private_in: list[Buffer | None] = []
        self._private_out: list[Buffer] = []
        for shape in self._in:
            self._private_in.append(None if shape is None else Buffer(shape, at))
            at = _after(at, 0 if shape is None else shape.nbytes)
        for shape in self._out:
            self._private_out.append(Buffer(shape, at))
            at = _after(at, shape.compared_nbytes)
        assert at <= self._private.arena.size, "the private arena is too small for this workload"

    def _at(self, call: Call) -> str:
        return where(self.workload, call.draw)


def is_compared(
    draw: Draw,
    tests: Tests,
    evidence: Evidence,
    reference_s: float,
    rng: random.Random,
    done: int,
    least: int,
) -> bool:
    """Decide whether a call is compared: all are, unless the reference is slow; then some are."""
    if reference_s * 1e3 <= tests.slow_reference_ms or draw.spread not in evidence.seen:
        return True
    chosen, of = tests.compared_calls
    is_due = tests.rounds - evidence.compared >= least - done
    return is_due or rng.random() < chosen / of


def where(workload: Workload, draw: Draw) -> str:
    """Say, after a reason, which call it was."""
    axes = ", ".join(f"{name}={size}" for name, size in workload.axes.items())
    return f" (workload {workload.uuid}: {axes}; {draw.spread} inputs)"


def wrote_outside(outside: int, buffer: Buffer, at: str) -> Failure:
    """Fail for a write `outside` bytes past the end of a buffer, or so many before its start if negative."""
    side = f"{outside} bytes past the end" if outside > 0 else f"{-outside} bytes before the start"
    return Failure(Status.RUNTIME_ERROR, f"it wrote {side} of {buffer.shape.name}{at}")


def changed_input(buffer: Buffer, at: str) -> Failure:
    return Failure(Status.REWARD_HACK, f"it changed its input {buffer.shape.name}{at}")


def buffer_sizes(problem: Problem, workload: Workload) -> list[int]:
    """Return the bytes of a call's tensors, inputs first."""
    inputs, outputs = shapes(problem.definition, problem.definition.resolve(workload))
    return [shape.nbytes for shape in (*inputs, *outputs) if shape is not None]


def one_of(buffer: Buffer | None, scalar: Scalar | None) -> Buffer | Scalar:
    """Return the tensor or the scalar that an input is."""
    if buffer is not None:
        return buffer
    assert scalar is not None, "an input is neither a tensor nor a scalar"
    return scalar


def _after(at: int, nbytes: int) -> int:
    return -(-(at + nbytes) // ALIGNMENT) * ALIGNMENT
