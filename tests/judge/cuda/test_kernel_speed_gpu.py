"""How long the judge's kernels take on a GPU at the size of a large RMSNorm; `-s` prints the figures."""

from __future__ import annotations

import statistics

import pytest

from swarm.definition import DType
from swarm.judge.cuda.contents import FORMS, PATTERN, Mode, region
from swarm.judge.cuda.driver import Event
from swarm.judge.cuda.kernels import CLEAN, FINDING, STATS, Pair, Pairs, Regions
from swarm.judge.cuda.tables import Table, TableKernel
from swarm.judge.kinds import Form
from swarm.judge.slots import GUARD_BYTES, Shape
from swarm.problem import Limits
from tests.judge.cuda.conftest import Bench

pytestmark = pytest.mark.gpu

ROWS, HIDDEN = 14418, 4096
COUNT = ROWS * HIDDEN
NBYTES = 2 * COUNT
DRAWN = {
    DType.BFLOAT16: Form.NORMAL,
    DType.FLOAT16: Form.NORMAL,
    DType.FLOAT32: Form.NORMAL,
    DType.FLOAT8_E4M3FN: Form.CLAMPED,
    DType.INT64: Form.INTEGERS,
    DType.INT8: Form.INTEGERS,
}
LIMITS = Limits(0.01, 0.01, 1.0, None, False)


def median_us(
    bench: Bench, kernel: TableKernel, table: Table, result_bytes: int = 0, calls: int = 21
) -> float:
    """Return what the GPU takes for one launch, results included; the table is there already."""
    taken = []
    stream = bench.kernels.stream
    for _ in range(calls):
        begun, ended = Event(), Event()
        begun.record(stream)
        kernel.queue(table, result_bytes, stream)
        ended.record(stream)
        ended.synchronize()
        taken.append(ended.us_since(begun))
    return statistics.median(taken)


@pytest.mark.parametrize("bench", ["gpu"], indirect=True)
def test_a_request_costs_little_more_than_its_bytes(bench: Bench) -> None:
    """All but the comparison are of the same number of bytes; that is of as many elements, at most."""
    arena = bench.arena(8 * NBYTES)
    address, aside = arena.address + GUARD_BYTES, arena.address + 2 * NBYTES
    wanted = arena.address + 4 * NBYTES
    kernels, figures = bench.kernels, {}
    for dtype, form in DRAWN.items():
        fields = {"key": 5, "a": 2.0 if form is Form.CLAMPED else 0.0, "b": 1.0, "low": -100, "span": 200}
        row = region(
            dtype, address, NBYTES * 8 // dtype.bits, kind=FORMS[form], factor=1.1, spread=1, **fields
        )  # type: ignore[arg-type]
        table = Regions([row])
        figures[f"fill {dtype}"] = median_us(bench, kernels._fill, table)
        figures[f"verify {dtype}"] = median_us(bench, kernels._inspect, table, FINDING.size)
        assert kernels.inspect(table) == [CLEAN]
    for mode in (Mode.SNAPSHOT, Mode.LIGHT, Mode.DIGEST):
        row = region(DType.BFLOAT16, address, COUNT, kind=PATTERN, source=aside, key=3, mode=mode)
        figures["poison"] = median_us(bench, kernels._fill, Regions([row]))
        figures[mode.name.lower()] = median_us(bench, kernels._inspect, Regions([row]), FINDING.size)
    kernels.stream.set_bytes(wanted, 0, 4 * NBYTES)
    for dtype in (DType.BFLOAT16, DType.FLOAT32, DType.FLOAT8_E4M3FN, DType.INT32):
        shape = Shape("y", dtype, (min(NBYTES * 8 // dtype.bits, COUNT),))
        kernels.stream.set_bytes(address, 0, shape.nbytes)
        pairs = Pairs([Pair(shape, address, wanted, 0)], LIMITS)
        figures[f"compare {shape.count >> 20} M of {dtype}"] = median_us(
            bench, kernels._compare, pairs, STATS.size
        )
        assert kernels.compare(pairs)[0].stats.bad == 0
    for name, us in figures.items():
        print(f"{name:36} {us:8.1f} us")
    assert figures["fill bfloat16"] < 80 and figures["verify bfloat16"] < 110
    assert figures["snapshot"] < 110 and figures["compare 56 M of bfloat16"] < 160


@pytest.mark.parametrize("bench", ["gpu"], indirect=True)
def test_no_kernel_spills(bench: Bench) -> None:
    for kernel in (bench.kernels._fill, bench.kernels._inspect, bench.kernels._compare):
        function = kernel.function
        registers, stack = function.attribute("NUM_REGS"), function.attribute("LOCAL_SIZE_BYTES")
        print(f"{function.symbol}: {registers} registers, {stack} bytes of stack")
        assert stack <= 512 and function.max_active_blocks(256, 0) >= 3
