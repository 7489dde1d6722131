"""One workload's inputs and reference on their own, without a candidate: for `lint`.

Contents follow from a seed as they do in a judgement; nothing is secret here, guarded or timed.
"""

from __future__ import annotations

import random
from types import TracebackType
from typing import Self

import torch

from swarm.judge import elements
from swarm.judge.arena import Arena, place
from swarm.judge.inputs import Inputs, Scalar, Spread, seed_number
from swarm.judge.reference import PLAIN, Reference
from swarm.judge.sitting import private_bytes
from swarm.judge.slots import Buffer, Shape, shapes
from swarm.problem import Problem
from swarm.workload import Workload

ARENA = "workbench"


class Workbench:
    """Draws inputs into an arena and asks the reference about whatever they hold then."""

    def __init__(self, problem: Problem, workload: Workload, reference: Reference, seed: str) -> None:
        self.workload = workload
        self.spread = Spread.PLAIN
        self._reference = reference
        self._seed = seed
        self._axes = problem.definition.resolve(workload)
        self._names = tuple(problem.definition.inputs)
        given, self.outputs = shapes(problem.definition, self._axes)
        hints = problem.distributions(workload)
        self._source = Inputs(problem.definition, workload, seed, hints, problem.files)
        self._arena = Arena(private_bytes(problem, workload))
        self._bytes = torch.frombuffer(self._arena.memory, dtype=torch.uint8)
        sizes = [s.nbytes for s in given if s is not None] + [s.compared_nbytes for s in self.outputs]
        at = iter(place(sizes, self._arena.size, 0, random.Random(seed)))
        self._in = [None if shape is None else Buffer(shape, next(at)) for shape in given]
        self._out = [Buffer(shape, next(at)) for shape in self.outputs]
        self._scalars: tuple[Scalar | None, ...] = ()

    def __enter__(self) -> Self:
        self._reference.map(ARENA, self._arena)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._arena.close()

    @property
    def inputs(self) -> list[Shape]:
        """The tensor inputs."""
        return [buffer.shape for buffer in self._in if buffer is not None]

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensor inputs as flat views: what is written to them is what the reference sees next."""
        return [
            self._bytes[buffer.offset : buffer.end].view(elements.stored_dtype(buffer.shape.dtype))
            for buffer in self._in
            if buffer is not None
        ]

    @property
    def memory(self) -> memoryview:
        """All of the arena, inputs where `arguments` says."""
        return memoryview(self._arena.memory)

    @property
    def arguments(self) -> list[Scalar]:
        """Return what a call is given after `draw`: offsets of tensors, values of scalars; outputs last."""
        given = [
            scalar if buffer is None else buffer.offset
            for buffer, scalar in zip(self._in, self._scalars, strict=True)
        ]
        return [*(value for value in given if value is not None), *(buffer.offset for buffer in self._out)]

    def draw(self) -> None:
        """Write the next draw's contents into the inputs."""
        draw = self._source.draw()
        self.spread = draw.spread
        self._scalars = draw.scalars
        if self.workload.is_custom:
            seed = seed_number(self._seed, f"call {draw.number}")
            made = self._reference.make_inputs(ARENA, self._axes, seed, self._in)
            self._scalars = tuple(made.get(name) for name in self._names)
            return
        tensors = iter(self.tensors())
        for index, buffer in enumerate(self._in):
            if buffer is not None:
                self._source.write(draw, index, next(tensors))

    def expect(self, name: str = PLAIN) -> list[torch.Tensor]:
        """Return the outputs of a function of the reference, in the dtype they are compared in."""
        given: list[Buffer | Scalar] = []
        for buffer, scalar in zip(self._in, self._scalars, strict=True):
            value = scalar if buffer is None else buffer
            assert value is not None, "an input is neither a tensor nor a scalar"
            given.append(value)
        self._reference.expect(ARENA, given, self._out, name)
        return [
            self._bytes[buffer.offset : buffer.offset + buffer.shape.compared_nbytes]
            .view(elements.comparable_dtype(buffer.shape.dtype))
            .clone()
            for buffer in self._out
        ]
