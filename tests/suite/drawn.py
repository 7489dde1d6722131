"""Two calls of a workload, drawn as a judge draws them, and what a reference makes of any mix of the two."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import torch

from swarm.judge import elements
from swarm.judge.arena import Arena, needed, place
from swarm.judge.cuda.contents import pool_bytes
from swarm.judge.cuda.driver import Context, Stream
from swarm.judge.cuda.kernels import Kernels, Regions
from swarm.judge.cuda.memory import DeviceArena
from swarm.judge.cuda.slots import Slots, aligned
from swarm.judge.inputs import Inputs, Scalar, Spread
from swarm.judge.reference import Reference
from swarm.judge.sitting import buffer_sizes
from swarm.judge.slots import GUARD_BYTES, Buffer, Shape, shapes
from swarm.problem import Problem
from swarm.workload import Workload

SEED = "suite"
SHARED, PRIVATE = "shared", "private"
Item = Buffer | Scalar
Outputs = list[torch.Tensor]
"""Flat, in the dtype in which outputs are compared."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Inputs of two calls without outliers and the like, in the definition's order."""

    first: tuple[Item, ...]
    second: tuple[Item, ...]
    outputs: list[Shape]
    answer: Callable[[Sequence[Item], Reference, str], Outputs]
    """What a function of a reference makes of inputs, which may come from either call."""
    read: Callable[[Buffer], bytes]
    """What an input holds."""


@contextmanager
def on_a_cpu(problem: Problem, workload: Workload, reference: Reference) -> Iterator[Calls]:
    definition = problem.definition
    axes = definition.resolve(workload)
    given, wanted = shapes(definition, axes)
    sizes = [shape.nbytes for shape in given if shape is not None] * 2
    sizes += [shape.compared_nbytes for shape in wanted]
    source = Inputs(definition, workload, SEED, problem.distributions(workload), problem.files)
    with Arena(needed(sizes, 0)) as arena:
        memory = torch.frombuffer(arena.memory, dtype=torch.uint8)
        at = iter(place(sizes, arena.size, 0, random.Random(SEED)))

        def drawn() -> tuple[Item, ...]:
            draw = next(draw for draw in iter(source.draw, None) if draw.spread is Spread.PLAIN)
            buffers = [None if shape is None else Buffer(shape, next(at)) for shape in given]
            scalars = draw.scalars
            if workload.is_custom:
                made = reference.make_inputs(SHARED, axes, draw.number, buffers)
                scalars = tuple(made.get(name) for name in definition.inputs)
            for index, buffer in enumerate(buffers):
                if buffer is not None and not workload.is_custom:
                    dtype = elements.stored_dtype(buffer.shape.dtype)
                    source.write(draw, index, memory[buffer.offset : buffer.end].view(dtype))
            return _items(buffers, scalars)

        def answer(inputs: Sequence[Item], by: Reference, name: str) -> Outputs:
            by.map(SHARED, arena)
            by.expect(SHARED, inputs, results, name)
            return [
                memory[one.offset : one.offset + one.shape.compared_nbytes]
                .view(elements.comparable_dtype(one.shape.dtype))
                .clone()
                for one in results
            ]

        reference.map(SHARED, arena)
        first, second = drawn(), drawn()
        results = [Buffer(shape, next(at)) for shape in wanted]
        yield Calls(first, second, wanted, answer, lambda one: bytes(memory[one.offset : one.end].numpy()))


@contextmanager
def on_a_gpu(
    problem: Problem, workload: Workload, reference: Reference, context: Context, kernels: Kernels
) -> Iterator[Calls]:
    _, wanted = shapes(problem.definition, problem.definition.resolve(workload))
    kept = [size for shape in wanted for size in (shape.nbytes, shape.compared_nbytes)]
    seen = needed(buffer_sizes(problem, workload) * 2, GUARD_BYTES)
    hidden = sum(map(aligned, [*pool_bytes(problem, workload), *kept, *kept])) + GUARD_BYTES
    shared, private = DeviceArena(context, seen), DeviceArena(context, hidden)
    stream = Stream()
    try:
        reference.map(SHARED, shared)
        reference.map(PRIVATE, private)
        slots = Slots(problem, workload, SEED, kernels, (shared, private), 2)
        pairs = (slots.draw(2) for _ in count())
        calls = next(pair for pair in pairs if all(call.draw.spread is Spread.PLAIN for call in pair))
        kernels.fill(Regions([row for call in calls for row in slots.given(call)]))
        for number, call in enumerate(calls if workload.is_custom else ()):
            buffers = [item if isinstance(item, Buffer) else None for item in call.inputs]
            calls[number] = slots.made(call, reference.make_inputs(SHARED, slots.axes, number, buffers))

        def answer(inputs: Sequence[Item], by: Reference, name: str) -> Outputs:
            by.expect_each(SHARED, PRIVATE, [(inputs, slots.expected[0])], name)
            return [
                torch.frombuffer(
                    bytearray(stream.read(slots.private_address(one), one.shape.compared_nbytes)),
                    dtype=elements.comparable_dtype(one.shape.dtype),
                )
                for one in slots.expected[0]
            ]

        def read(one: Buffer) -> bytes:
            return stream.read(shared.address + one.offset, one.shape.nbytes)

        yield Calls(tuple(calls[0].inputs), tuple(calls[1].inputs), wanted, answer, read)
    finally:
        shared.close()
        private.close()


def _items(buffers: Sequence[Buffer | None], scalars: Sequence[Scalar | None]) -> tuple[Item, ...]:
    found: list[Item] = []
    for buffer, scalar in zip(buffers, scalars, strict=True):
        item = scalar if buffer is None else buffer
        assert item is not None, "an input is neither a tensor nor a scalar"
        found.append(item)
    return tuple(found)
