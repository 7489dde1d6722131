"""Where the buffers of a workload's calls lie on a GPU, and what each holds, as rows for the kernels."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from swarm.judge import elements
from swarm.judge.arena import ALIGNMENT, place
from swarm.judge.cuda.contents import PATTERN, Contents, Mode, region, repeated
from swarm.judge.cuda.kernels import Kernels, Pair
from swarm.judge.cuda.memory import DeviceArena
from swarm.judge.inputs import Draw, Scalar, seed_number
from swarm.judge.runner import Slot
from swarm.judge.sitting import Call, buffer_sizes, one_of
from swarm.judge.slots import GUARD_BYTES, Buffer, shapes
from swarm.problem import Problem
from swarm.workload import Workload


class Slots:
    """The places of one workload: slots are shared; pools, copies and expectations private."""

    def __init__(
        self,
        problem: Problem,
        workload: Workload,
        seed: str,
        kernels: Kernels,
        arenas: tuple[DeviceArena, DeviceArena],
        count: int,
    ) -> None:
        """`arenas` are (what runners see, what only judge and reference see); `count` calls fit at a time."""
        self.axes = problem.definition.resolve(workload)
        self.is_custom = workload.is_custom
        self._names = tuple(problem.definition.inputs)
        self._runtime_axes = {name: self.axes[name] for name in problem.definition.runtime_axes}
        self._in, self._out = shapes(problem.definition, self.axes)
        self._sizes = buffer_sizes(problem, workload)
        self._seed = seed
        self._rng = random.Random(f"{seed}/{workload.uuid}/places")
        self._kernels = kernels
        self._shared, self._private = arenas
        self._used_bytes = 0
        self._rows: dict[int, tuple[list[bytes], list[bytes]]] = {}
        """By draw: its inputs, and its outputs as they are copied aside."""
        self._numbers: dict[int, int] = {}
        """By draw: which of a request's calls it is."""
        self._contents = Contents(problem, workload, seed, self._keep)
        self.kept = [[Buffer(s, self._reserve(s.nbytes)) for s in self._out] for _ in range(count)]
        """By call: where its outputs are copied to, in the private arena."""
        self.expected = [
            [Buffer(s, self._reserve(s.compared_nbytes)) for s in self._out] for _ in range(count)
        ]
        """By call: where the reference's outputs go, in the private arena and the comparable dtype."""

    def draw(self, count: int) -> list[Call]:
        """Choose what `count` calls hold, and where; nothing is written, and older calls are forgotten."""
        every = len(self._sizes)
        offsets = place(self._sizes * count, self._shared.size, GUARD_BYTES, self._rng)
        calls = [self._call(offsets[at : at + every]) for at in range(0, count * every, every)]
        self._numbers = {call.draw.number: number for number, call in enumerate(calls)}
        self._rows = {call.draw.number: (self._given(call), self._copied(call)) for call in calls}
        return calls

    def number(self, call: Call) -> int:
        """Return which of its request's calls it is."""
        return self._numbers[call.draw.number]

    def given(self, call: Call) -> list[bytes]:
        """Describe the inputs of a call."""
        return self._rows[call.draw.number][0]

    def copied(self, call: Call) -> list[bytes]:
        """Describe the outputs of a call: poisoned before it, copied aside after it."""
        return self._rows[call.draw.number][1]

    def looked_at(self, call: Call) -> list[bytes]:
        """Describe the outputs of a call that are not compared."""
        return [self._output(call, index, 0, Mode.LIGHT) for index in range(len(call.outputs))]

    def made(self, call: Call, scalars: Mapping[str, Scalar]) -> Call:
        """Return a call with the scalars that the problem's own code made."""
        buffers = [item if isinstance(item, Buffer) else None for item in call.inputs]
        given = [scalars.get(name) for name in self._names]
        return self._with(call.draw, buffers, given, call.outputs, call.poison)

    def pairs(self, call: Call) -> list[Pair]:
        """Return the copied outputs of a call and where the reference's are."""
        number = self.number(call)
        return [
            Pair(kept.shape, self.private_address(kept), self.private_address(expected), poison)
            for kept, expected, poison in zip(
                self.kept[number], self.expected[number], call.poison, strict=True
            )
        ]

    def private_address(self, buffer: Buffer) -> int:
        return self._private.address + buffer.offset

    def _call(self, offsets: Sequence[int]) -> Call:
        """Draw what one slot holds; its buffers lie at `offsets`, tensor inputs first."""
        draw = self._contents.draw()
        at = iter(offsets)
        buffers = [None if shape is None else Buffer(shape, next(at)) for shape in self._in]
        outputs = tuple(Buffer(shape, next(at)) for shape in self._out)
        scalars = tuple(0 for _ in self._in) if self.is_custom else draw.scalars
        poison = tuple(elements.poison(shape.dtype, self._rng) for shape in self._out)
        return self._with(draw, buffers, scalars, outputs, poison)

    def _with(
        self,
        draw: Draw,
        buffers: Sequence[Buffer | None],
        scalars: Sequence[Scalar | None],
        outputs: tuple[Buffer, ...],
        poison: tuple[int, ...],
    ) -> Call:
        inputs = tuple(one_of(b, s) for b, s in zip(buffers, scalars, strict=True))
        slot = Slot(
            tuple(i.offset if isinstance(i, Buffer) else i for i in inputs),
            tuple(buffer.offset for buffer in outputs),
            self._runtime_axes,
        )
        return Call(draw, inputs, outputs, poison, slot)

    def _given(self, call: Call) -> list[bytes]:
        return [
            self._custom(item, call.draw)
            if self.is_custom
            else self._contents.region(call.draw, index, self._shared.address + item.offset)
            for index, item in enumerate(call.inputs)
            if isinstance(item, Buffer)
        ]

    def _copied(self, call: Call) -> list[bytes]:
        kept = self.kept[self.number(call)]
        return [
            self._output(call, index, self.private_address(buffer), Mode.SNAPSHOT)
            for index, buffer in enumerate(kept)
        ]

    def _output(self, call: Call, index: int, aside: int, mode: Mode) -> bytes:
        shape = call.outputs[index].shape
        return region(
            shape.dtype,
            self._shared.address + call.outputs[index].offset,
            shape.count,
            kind=PATTERN,
            pattern=repeated(call.poison[index], shape.dtype),
            source=aside,
            mode=mode,
        )

    def _custom(self, buffer: Buffer, draw: Draw) -> bytes:
        key = seed_number(self._seed, f"digest {draw.number}")
        shape = buffer.shape
        address = self._shared.address + buffer.offset
        return region(shape.dtype, address, shape.count, kind=PATTERN, key=key, mode=Mode.DIGEST)

    def _reserve(self, nbytes: int) -> int:
        """Return the offset of private memory that nothing else uses."""
        offset = self._used_bytes
        self._used_bytes += aligned(nbytes)
        assert self._used_bytes <= self._private.size, "the private arena is too small"
        return offset

    def _keep(self, data: bytes) -> int:
        address = self._private.address + self._reserve(len(data))
        self._kernels.put(address, data)
        return address


def aligned(nbytes: int) -> int:
    """Round up to where the next buffer may lie."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
