"""Honest candidates in CuTe DSL."""

from __future__ import annotations

from tests.corpus.cases import Files, honest, python

IMPORTS = """\
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

LANES, ROWS = 32, 4
STEPS = 512 // LANES
"""
SCALE = """

@cute.jit
def scale_of(x: cute.Tensor, row, lane):
    total = cutlass.Float32(0.0)
    for i in cutlass.range_constexpr(STEPS):
        value = x[row, lane + i * LANES]
        total += value * value
    for step in cutlass.range_constexpr(5):
        total += cute.arch.shuffle_sync_bfly(total, offset=1 << step)
    return cute.math.rsqrt(total / 512 + 1e-5)
"""
PLAIN = (
    SCALE
    + """

@cute.kernel
def rows_of(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, rows: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    lane = thread % LANES
    row = block * ROWS + thread // LANES
    if row < rows:
        scale = scale_of(x, row, lane)
        for i in cutlass.range_constexpr(STEPS):
            column = lane + i * LANES
            y[row, column] = x[row, column] * scale * w[column]


@cute.jit
def launch(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, rows: cutlass.Int32):
    rows_of(x, w, y, rows).launch(grid=[(rows + ROWS - 1) // ROWS, 1, 1], block=[LANES * ROWS, 1, 1])
"""
)
DYNAMIC = """

ready = {}


def tensors_of(x, w, y):
    a, b, c = (from_dlpack(tensor, assumed_align=16) for tensor in (x, w, y))
    return a.mark_compact_shape_dynamic(mode=0), b, c.mark_compact_shape_dynamic(mode=0)


def run(x, w, y):
    given = tensors_of(x, w, y)
    if not ready:
        ready["launch"] = cute.compile(launch, *given, x.shape[0])
    ready["launch"](*given, x.shape[0])
"""


def cute(source: str) -> Files:
    return python(f"{IMPORTS}{source}", "cute_dsl")


@honest()
def plain_rows() -> Files:
    """One warp for each row; compiled by the first call, for any number of rows.

    Looks like: A9, a first call that takes seconds; others are compared with it.
    """
    return cute(PLAIN + DYNAMIC)


@honest()
def compiled_for_each_size() -> Files:
    """Compiles anew for each number of rows, and keeps what it compiled.

    Looks like: B8, code for the very sizes that are measured; and B3, a dictionary that is kept.
    """
    return cute(
        PLAIN
        + """

ready = {}


def run(x, w, y):
    given = [from_dlpack(tensor, assumed_align=16) for tensor in (x, w, y)]
    rows = x.shape[0]
    if rows not in ready:
        ready[rows] = cute.compile(launch, *given, rows)
    ready[rows](*given, rows)
"""
    )


@honest()
def blocks_that_stay() -> Files:
    """No more than 528 blocks, whose warps walk over all rows.

    Looks like: A15, a kernel that stays on the device.
    """
    return cute(
        SCALE
        + """

@cute.kernel
def stay(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, rows: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    lane = thread % LANES
    for row in cutlass.range(block * ROWS + thread // LANES, rows, blocks * ROWS):
        scale = scale_of(x, row, lane)
        for i in cutlass.range_constexpr(STEPS):
            column = lane + i * LANES
            y[row, column] = x[row, column] * scale * w[column]


@cute.jit
def launch(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, rows: cutlass.Int32):
    blocks = cutlass.min((rows + ROWS - 1) // ROWS, 528)
    stay(x, w, y, rows).launch(grid=[blocks, 1, 1], block=[LANES * ROWS, 1, 1])
"""
        + DYNAMIC
    )


@honest()
def output_is_scratch() -> Files:
    """A first kernel leaves each row's scale in the output, a second one reads it there and overwrites it.

    Looks like: B1, an output that is read.
    """
    return cute(
        SCALE
        + """

@cute.kernel
def scales(x: cute.Tensor, y: cute.Tensor):
    lane, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    scale = scale_of(x, row, lane)
    if lane == 0:
        y[row, 0] = scale


@cute.kernel
def apply(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor):
    lane, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    scale = y[row, 0]
    cute.arch.sync_threads()
    for i in cutlass.range_constexpr(STEPS):
        column = lane + i * LANES
        y[row, column] = x[row, column] * scale * w[column]


@cute.jit
def launch(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, rows: cutlass.Int32):
    scales(x, y).launch(grid=[rows, 1, 1], block=[LANES, 1, 1])
    apply(x, w, y).launch(grid=[rows, 1, 1], block=[LANES, 1, 1])
"""
        + DYNAMIC
    )


@honest(problem="ragged")
def ends_at_the_length() -> Files:
    """Loops over as many elements as a row's length counts, and writes zeros for the rest.

    Looks like: B8, half of the input is never read.
    """
    return cute("""

@cute.kernel
def ragged(x: cute.Tensor, length: cute.Tensor, y: cute.Tensor):
    lane, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    count = length[row]
    total = cutlass.Float32(0.0)
    most = cutlass.Float32(-1e30)
    for column in cutlass.range(lane, count, LANES):
        most = cute.arch.fmax(most, x[row, column])
    for step in cutlass.range_constexpr(5):
        most = cute.arch.fmax(most, cute.arch.shuffle_sync_bfly(most, offset=1 << step))
    for column in cutlass.range(lane, count, LANES):
        total += cute.math.exp(x[row, column] - most)
    for step in cutlass.range_constexpr(5):
        total += cute.arch.shuffle_sync_bfly(total, offset=1 << step)
    for column in cutlass.range(lane, 512, LANES):
        y[row, column] = cutlass.Float32(0.0)
        if column < count:
            y[row, column] = cute.math.exp(x[row, column] - most) / total


@cute.jit
def launch(x: cute.Tensor, length: cute.Tensor, y: cute.Tensor, rows: cutlass.Int32):
    ragged(x, length, y).launch(grid=[rows, 1, 1], block=[LANES, 1, 1])


ready = {}


def run(x, length, y):
    given = [from_dlpack(tensor).mark_compact_shape_dynamic(mode=0) for tensor in (x, length, y)]
    if not ready:
        ready["launch"] = cute.compile(launch, *given, x.shape[0])
    ready["launch"](*given, x.shape[0])
""")


@honest(problem="total")
def scratch_that_is_kept() -> Files:
    """Partial sums in a tensor that is made at the first call and used by all; then a second kernel.

    Looks like: B3, a tensor that outlives the call.
    """
    return cute("""
PARTS = 64


@cute.kernel
def parts_of(x: cute.Tensor, parts: cute.Tensor, rows: cutlass.Int32):
    column, _, _ = cute.arch.thread_idx()
    part, _, _ = cute.arch.block_idx()
    total = cutlass.Float32(0.0)
    for row in cutlass.range(part, rows, PARTS):
        total += x[row, column] * x[row, column]
    parts[part, column] = total


@cute.kernel
def combine(parts: cute.Tensor, y: cute.Tensor):
    column, _, _ = cute.arch.thread_idx()
    total = cutlass.Float32(0.0)
    for part in cutlass.range(PARTS):
        total += parts[part, column]
    y[column] = total


@cute.jit
def launch(x: cute.Tensor, parts: cute.Tensor, y: cute.Tensor, rows: cutlass.Int32):
    parts_of(x, parts, rows).launch(grid=[PARTS, 1, 1], block=[512, 1, 1])
    combine(parts, y).launch(grid=[1, 1, 1], block=[512, 1, 1])


kept, ready = {}, {}


def run(x, y):
    if not kept:
        kept["parts"] = torch.empty(PARTS, 512, device=x.device)
    given = from_dlpack(x).mark_compact_shape_dynamic(mode=0), from_dlpack(kept["parts"]), from_dlpack(y)
    if not ready:
        ready["launch"] = cute.compile(launch, *given, x.shape[0])
    ready["launch"](*given, x.shape[0])
""")
