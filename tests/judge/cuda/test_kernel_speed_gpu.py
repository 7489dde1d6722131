"""How long the judge's kernels take on a GPU at the size of a large RMSNorm; `-s` prints the figures."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import pytest

from swarm.definition import DType
from swarm.judge.cuda.contents import FORMS, PATTERN, Mode, region
from swarm.judge.cuda.driver import Event
from swarm.judge.cuda.kernels import Pair, Pairs, Regions
from swarm.judge.kinds import Form
from swarm.judge.slots import GUARD_BYTES, Shape
from swarm.problem import Limits
from tests.judge.cuda.conftest import Bench

pytestmark = pytest.mark.gpu

ROWS, HIDDEN = 14418, 4096
COUNT = ROWS * HIDDEN
NBYTES = 2 * COUNT
LIMITS = Limits(0.01, 0.01, 1.0, None, False)


def median_us(bench: Bench, work: Callable[[], object], calls: int = 21) -> float:
    """Return what the GPU takes for one call, table and results included."""
    taken = []
    stream = bench.kernels.stream
    for _ in range(calls):
        begun, ended = Event(), Event()
        begun.record(stream)
        work()
        ended.record(stream)
        ended.synchronize()
        taken.append(ended.us_since(begun))
    return statistics.median(taken)


@pytest.mark.parametrize("bench", ["gpu"], indirect=True)
def test_a_request_costs_little_more_than_its_bytes(bench: Bench) -> None:
    arena = bench.arena(8 * NBYTES)
    address, aside = arena.address + GUARD_BYTES, arena.address + 2 * NBYTES
    wanted = arena.address + 4 * NBYTES
    gib_s = NBYTES / 2**30 * 1e6
    figures: dict[str, float] = {}
    for dtype in (DType.BFLOAT16, DType.FLOAT16, DType.FLOAT32, DType.FLOAT8_E4M3FN, DType.INT64, DType.INT8):
        count = NBYTES * 8 // dtype.bits
        form = Form.NORMAL if dtype.bits > 8 and dtype.is_float else Form.CLAMPED if dtype.is_float else None
        fields = {
            "kind": FORMS[form or Form.INTEGERS],
            "key": 5,
            "a": 2.0 if dtype.bits == 8 else 0.0,
            "b": 1.0,
        }
        row = region(dtype, address, count, low=-100, span=200, factor=1.1, spread=1, **fields)  # type: ignore[arg-type]
        figures[f"fill {dtype}"] = median_us(bench, lambda row=row: bench.kernels.fill(Regions([row])))
        figures[f"verify {dtype}"] = median_us(bench, lambda row=row: bench.kernels.inspect(Regions([row])))
        assert bench.kernels.inspect(Regions([row]))[0].changed is None
    for mode in (Mode.SNAPSHOT, Mode.LIGHT, Mode.DIGEST):
        table = Regions(
            [region(DType.BFLOAT16, address, COUNT, kind=PATTERN, source=aside, key=3, mode=mode)]
        )
        figures[f"poison for {mode.name}"] = median_us(bench, lambda table=table: bench.kernels.fill(table))
        figures[mode.name.lower()] = median_us(bench, lambda table=table: bench.kernels.inspect(table))
    for dtype in (DType.BFLOAT16, DType.FLOAT32, DType.FLOAT8_E4M3FN, DType.INT32):
        count = min(NBYTES * 8 // dtype.bits, COUNT)
        pair = Pair(Shape("y", dtype, (count,)), address, wanted, 0)
        bench.kernels.stream.set_bytes(address, 0, 2 * NBYTES)
        bench.kernels.stream.set_bytes(wanted, 0, 4 * NBYTES)
        figures[f"compare {count} {dtype}"] = median_us(
            bench, lambda pair=pair: bench.kernels.compare(Pairs([pair], LIMITS))
        )
        assert bench.kernels.compare(Pairs([pair], LIMITS))[0].stats.bad == 0
    for name, us in figures.items():
        print(f"{name:32} {us:8.1f} us  ({gib_s / us:7.0f} GiB/s of its first {NBYTES / 2**20:.0f} MiB)")
    assert figures["fill bfloat16"] < 80 and figures["verify bfloat16"] < 110
    assert figures["snapshot"] < 110 and figures["compare 59056128 bfloat16"] < 160


@pytest.mark.parametrize("bench", ["gpu"], indirect=True)
def test_no_kernel_spills(bench: Bench) -> None:
    for kernel in (bench.kernels._fill, bench.kernels._inspect, bench.kernels._compare):
        function = kernel.function
        registers, stack = function.attribute("NUM_REGS"), function.attribute("LOCAL_SIZE_BYTES")
        print(f"{function.symbol}: {registers} registers, {stack} bytes of stack")
        assert stack <= 512 and function.max_active_blocks(256, 0) >= 3
