"""The calls of one request cannot do each other's work, and what is not done in time is seen."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from swarm.judge.cuda.session import Trick
from swarm.judge.cuda.veil import Tensors, Veil
from swarm.judge.cuda.wire import Clock, unpack_claims
from tests.judge.cuda import emulated
from tests.judge.cuda.emulated_session import Bench

LARGE = (16 << 20) + 4096 + 7
Work = Callable[[Bench, int, list[int]], None]
both_kinds = pytest.mark.parametrize("kind", ["plan", "shared_object"])
both_clocks = pytest.mark.parametrize("clock", list(Clock))


@pytest.fixture
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    emulated.install(monkeypatch, request.getfixturevalue("library"))
    yield Bench(monkeypatch)
    emulated.uninstall()


class Memory:
    """Tensors at the emulated device."""

    def __init__(self, bench: Bench, *sizes: int) -> None:
        self._bench = bench
        rng = random.Random(5)
        self.data = [rng.randbytes(size) for size in sizes]
        self.ranges = tuple((bench.gpu.context.allocate(size + 16), size) for size in sizes)
        for (address, _), data in zip(self.ranges, self.data, strict=True):
            bench.gpu.stream.write(address, data + b"G" * 16)

    def read(self) -> list[bytes]:
        found = [self._bench.gpu.stream.read(address, size + 16) for address, size in self.ranges]
        assert all(data.endswith(b"G" * 16) for data in found), "beyond the tensor nothing is touched"
        return [data[:-16] for data in found]


def test_inputs_are_hidden_until_they_are_shown_whatever_their_size(bench: Bench) -> None:
    memory = Memory(bench, 1, 15, 16, 17, 4096, 70_001, 0, *range(1, 20))
    veil = Veil(bench.gpu)
    veil.begin([Tensors((), ()), Tensors(memory.ranges, ())])
    hidden = memory.read()
    for before, now in zip(memory.data, hidden, strict=True):
        same = sum(a == b for a, b in zip(before, now, strict=True))
        assert same <= 4 + len(before) / 64
    assert len({data[:8] for data in hidden if len(data) >= 8}) == sum(len(data) >= 8 for data in hidden)
    veil.show(1)
    assert memory.read() == memory.data


def test_of_a_large_input_every_eighth_part_is_hidden(bench: Bench) -> None:
    memory = Memory(bench, LARGE)
    veil = Veil(bench.gpu)
    veil.begin([Tensors((), ()), Tensors(memory.ranges, ())])
    [before], [now] = memory.data, memory.read()
    changed = [before[at : at + 4096] != now[at : at + 4096] for at in range(0, LARGE, 4096)]
    assert changed[:-1] == [part % 8 == 0 for part in range(len(changed) - 1)]
    veil.show(1)
    assert memory.read() == memory.data


@pytest.mark.parametrize("size", [3, 16, 20_003])
def test_any_byte_of_an_output_that_changes_after_its_call_is_noticed(bench: Bench, size: int) -> None:
    memory = Memory(bench, 64, size)
    slots = [Tensors((), memory.ranges[:1]), Tensors((), memory.ranges)]
    for place in (0, size // 2, size - 1):
        veil = Veil(bench.gpu)
        veil.begin(slots)
        veil.note(0)
        veil.note(1)
        assert veil.changed() is None
        veil.begin(slots)
        veil.note(0)
        veil.note(1)
        address = memory.ranges[1][0] + place
        [byte] = bench.gpu.stream.read(address, 1)
        bench.gpu.stream.write(address, bytes([byte ^ 1]))
        assert veil.changed() == 1


def honest(bench: Bench, slot: int, slots: list[int]) -> None:
    bench.double(slot)
    bench.device.ran("double", 5_000)


@both_kinds
@both_clocks
@pytest.mark.parametrize("count", [1, 5])
def test_an_honest_candidate_is_given_its_inputs_and_left_its_outputs(
    bench: Bench, kind: str, clock: Clock, count: int
) -> None:
    made = bench.session(kind, honest)
    for is_first in (True, False):
        bench.request(made, count, clock, is_first=is_first)
        assert bench.wrong() == bench.changed_inputs() == []


@both_kinds
@both_clocks
def test_work_done_ahead_is_done_with_inputs_that_are_not_there_yet(
    bench: Bench, kind: str, clock: Clock
) -> None:
    def ahead(bench: Bench, slot: int, slots: list[int]) -> None:
        if slot == slots[0]:
            for other in slots:
                bench.double(other)
        bench.device.ran("all", 1_000)

    bench.request(bench.session(kind, ahead), 4, clock)
    assert bench.wrong() == [1, 2, 3]
    assert bench.changed_inputs() == []


@both_kinds
@both_clocks
def test_work_put_off_to_the_last_call_is_a_trick(bench: Bench, kind: str, clock: Clock) -> None:
    def put_off(bench: Bench, slot: int, slots: list[int]) -> None:
        if slot == slots[-1]:
            for other in slots:
                bench.double(other)
        bench.device.ran("all", 1_000)

    with pytest.raises(Trick, match="outputs of call 1 of 4 changed after its call was over"):
        bench.request(bench.session(kind, put_off), 4, clock)


@both_clocks
def test_work_that_nobody_waits_for_is_a_trick(bench: Bench, clock: Clock) -> None:
    def beside(bench: Bench, slot: int, slots: list[int]) -> None:
        bench.device.later.append(lambda: bench.double(slot))

    with pytest.raises(Trick, match="outputs of call 1 of 2 changed after its call was over"):
        bench.request(bench.session("shared_object", beside), 2, clock)


def test_work_that_begins_before_its_turn_is_a_trick_of_code_on_the_host(bench: Bench) -> None:
    def early(bench: Bench, slot: int, slots: list[int]) -> None:
        bench.double(slot)
        bench.device.ran("side", 30_000, early_ns=29_000)

    with pytest.raises(Trick, match=r"call 1 was at work 29\.0 us before it was to begin"):
        bench.request(bench.session("shared_object", early), 2)


def test_work_beside_the_calls_is_a_trick_whatever_its_kernel_is_called(bench: Bench) -> None:
    bench.request(bench.session("shared_object", honest), 3)
    for name in ("mine", "swarm_spin"):

        def beside(bench: Bench, slot: int, slots: list[int], name: str = name) -> None:
            honest(bench, slot, slots)
            bench.device.later.append(lambda: bench.device.ran(name, 10))

        with pytest.raises(Trick, match="3 kernels, copies or fills ran outside its calls"):
            bench.request(bench.session("shared_object", beside), 3)


@pytest.mark.parametrize("mark", ["swarm_open", "swarm_close"])
def test_false_marks_are_a_trick(bench: Bench, mark: str) -> None:
    def marks(bench: Bench, slot: int, slots: list[int]) -> None:
        bench.device.ran(mark, 10)
        honest(bench, slot, slots)

    with pytest.raises(Trick, match="what CUPTI saw is not all that we did, or more"):
        bench.request(bench.session("shared_object", marks), 3)


def test_what_we_queue_ourselves_is_in_no_claim(bench: Bench) -> None:
    made = bench.session("shared_object", honest)
    for clock, ns in ((Clock.CUPTI, 5_000), (Clock.EVENTS, 5_000)):
        answer = bench.request(made, 3, clock)
        claims = unpack_claims(answer, answer[1:9], 3)
        assert claims is not None
        assert [claim.ns for claim in claims] == [ns] * 3
