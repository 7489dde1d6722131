"""Honest candidates in Triton."""

from __future__ import annotations

from tests.corpus.cases import Files, honest, python

IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n"
ROW = """

@triton.jit
def row_of(x, w, y, columns: tl.constexpr):
    places = tl.arange(0, columns)
    at = tl.program_id(0).to(tl.int64) * columns + places
    held = tl.load(x + at)
    scale = tl.rsqrt(tl.sum(held * held) / columns + 1e-5)
    tl.store(y + at, held * scale * tl.load(w + places))
"""


def triton(source: str, head: str = "") -> Files:
    return python(f"{IMPORTS}{head}{source}", "triton")


@honest()
def plain_rows() -> Files:
    """One program for each row.

    Looks like: nothing; others are compared with it.
    """
    return triton(
        ROW
        + """

def run(x, w, y):
    row_of[(x.shape[0],)](x, w, y, columns=512)
"""
    )


@honest()
def returns_its_output() -> Files:
    """Allocates its output and returns it, as most code that is not written for a benchmark does.

    Looks like: A4, an output that is an object of the candidate's.
    """
    files = triton(
        ROW
        + """

def run(x, w):
    y = torch.empty_like(x)
    row_of[(x.shape[0],)](x, w, y, columns=512)
    return y
"""
    )
    return files | {"solution.toml": files["solution.toml"] + b"destination_passing = false\n"}


@honest()
def configuration_found_by_trying() -> Files:
    """Tries five configurations when it meets a number of rows for the first time, and keeps the fastest.

    Looks like: A9, a first call that is unlike the others and takes the time itself.
    """
    return triton("""

@triton.autotune(
    configs=[triton.Config({"ROWS": rows}, num_warps=warps) for rows in (1, 4) for warps in (1, 4)]
    + [triton.Config({"ROWS": 8}, num_warps=8)],
    key=["rows"],
)
@triton.jit
def some_rows(x, w, y, rows, ROWS: tl.constexpr, columns: tl.constexpr):
    places = tl.arange(0, columns)[None, :]
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    at = row * columns + places
    held = tl.load(x + at, mask=row < rows, other=0.0)
    scale = tl.rsqrt(tl.sum(held * held, axis=1, keep_dims=True) / columns + 1e-5)
    tl.store(y + at, held * scale * tl.load(w + places), mask=row < rows)


def run(x, w, y):
    rows = x.shape[0]
    some_rows[lambda meta: (triton.cdiv(rows, meta["ROWS"]),)](x, w, y, rows, columns=512)
""")


@honest()
def number_of_rows_as_a_constant() -> Files:
    """Compiles anew for each number of rows, which the kernel has as a constant.

    Looks like: B8, code for the very sizes that are measured.
    """
    return triton("""

@triton.jit
def share_of(x, w, y, rows: tl.constexpr, programs: tl.constexpr, columns: tl.constexpr):
    places = tl.arange(0, columns)
    gain = tl.load(w + places)
    for row in range(tl.program_id(0), rows, programs):
        at = row * columns + places
        held = tl.load(x + at)
        tl.store(y + at, held * tl.rsqrt(tl.sum(held * held) / columns + 1e-5) * gain)


def run(x, w, y):
    programs = min(x.shape[0], 512)
    share_of[(programs,)](x, w, y, rows=x.shape[0], programs=programs, columns=512)
""")


@honest()
def programs_that_stay() -> Files:
    """As many programs as the device has multiprocessors, times four; that number is asked for once.

    Looks like: A15, a kernel that stays on the device; and B3, something that is cached.
    """
    return triton(
        """

@lru_cache
def programs_on(device):
    return 4 * torch.cuda.get_device_properties(device).multi_processor_count


@triton.jit
def stay(x, w, y, rows, columns: tl.constexpr):
    places = tl.arange(0, columns)
    gain = tl.load(w + places)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=3):
        at = row * columns + places
        held = tl.load(x + at)
        tl.store(y + at, held * tl.rsqrt(tl.sum(held * held) / columns + 1e-5) * gain)


def run(x, w, y):
    stay[(min(x.shape[0], programs_on(x.device)),)](x, w, y, x.shape[0], columns=512)
""",
        head="from functools import lru_cache\n",
    )


@honest()
def two_streams_that_meet_again() -> Files:
    """Half of the rows on a stream of its own, which waits for the caller's and is waited for.

    Looks like: A1, work on a stream that is not the caller's.
    """
    return triton(
        ROW
        + """

side = torch.cuda.Stream()


def run(x, w, y):
    half = x.shape[0] // 2
    caller = torch.cuda.current_stream()
    side.wait_stream(caller)
    with torch.cuda.stream(side):
        row_of[(x.shape[0] - half,)](x[half:], w, y[half:], columns=512)
    if half:
        row_of[(half,)](x, w, y, columns=512)
    caller.wait_stream(side)
"""
    )


@honest()
def instruction_written_out() -> Files:
    """The reciprocal root by the instruction itself, and one step of Newton's.

    Looks like: B9, an approximation where the definition has none.
    """
    return triton("""

@triton.jit
def row_of(x, w, y, columns: tl.constexpr):
    places = tl.arange(0, columns)
    at = tl.program_id(0).to(tl.int64) * columns + places
    held = tl.load(x + at)
    mean = tl.sum(held * held) / columns + 1e-5
    scale = tl.inline_asm_elementwise(
        "rsqrt.approx.ftz.f32 $0, $1;", "=f,f", [mean], dtype=tl.float32, is_pure=True, pack=1
    )
    scale *= 1.5 - 0.5 * mean * scale * scale
    tl.store(y + at, held * scale * tl.load(w + places))


def run(x, w, y):
    row_of[(x.shape[0],)](x, w, y, columns=512)
""")


@honest(problem="total")
def sums_by_atomics() -> Files:
    """Programs add to the output atomically, so that the last bits are others in every run.

    Looks like: B10, results that are not the same twice.
    """
    return triton("""

@triton.jit
def add(x, y, rows, columns: tl.constexpr, block: tl.constexpr):
    places = tl.arange(0, columns)[None, :]
    row = tl.program_id(0) * block + tl.arange(0, block)[:, None]
    held = tl.load(x + row.to(tl.int64) * columns + places, mask=row < rows, other=0.0)
    tl.atomic_add(y + tl.arange(0, columns), tl.sum(held * held, axis=0))


def run(x, y):
    y.zero_()
    add[(triton.cdiv(x.shape[0], 16),)](x, y, x.shape[0], columns=512, block=16)
""")


@honest(problem="total")
def scratch_that_is_kept() -> Files:
    """Partial sums in a tensor that is made at the first call and used by all; then a second kernel.

    Looks like: B3, a tensor that outlives the call.
    """
    return triton("""

@triton.jit
def parts_of(x, parts, rows, columns: tl.constexpr, programs: tl.constexpr):
    places = tl.arange(0, columns)
    total = tl.zeros((columns,), tl.float32)
    for row in range(tl.program_id(0), rows, programs):
        held = tl.load(x + row * columns + places)
        total += held * held
    tl.store(parts + tl.program_id(0) * columns + places, total)


@triton.jit
def combine(parts, y, columns: tl.constexpr, programs: tl.constexpr, block: tl.constexpr):
    places = tl.program_id(0) * block + tl.arange(0, block)[None, :]
    held = tl.load(parts + tl.arange(0, programs)[:, None] * columns + places)
    tl.store(y + tl.program_id(0) * block + tl.arange(0, block), tl.sum(held, axis=0))


kept = []


def run(x, y):
    if not kept:
        kept.append(torch.empty(64, 512, device=x.device))
    parts_of[(64,)](x, kept[0], x.shape[0], columns=512, programs=64)
    combine[(16,)](kept[0], y, columns=512, programs=64, block=32)
""")


@honest(problem="product")
def tiles_on_tensor_cores() -> Files:
    """Products of whole tiles, with loads of the next ones under way.

    Looks like: B9, hardware that adds in its own order.
    """
    return triton("""

@triton.jit
def tiles(a, weight, c, rows, size: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m = tl.program_id(0) * M + tl.arange(0, M)[:, None]
    n = tl.program_id(1) * N + tl.arange(0, N)[None, :]
    total = tl.zeros((M, N), tl.float32)
    for begin in tl.range(0, size, K, num_stages=3):
        across, down = begin + tl.arange(0, K)[None, :], begin + tl.arange(0, K)[:, None]
        left = tl.load(a + m.to(tl.int64) * size + across, mask=m < rows, other=0.0)
        total = tl.dot(left, tl.load(weight + down * size + n), total)
    tl.store(c + m.to(tl.int64) * size + n, total.to(tl.bfloat16), mask=m < rows)


def run(a, weight, c):
    rows = a.shape[0]
    tiles[(triton.cdiv(rows, 64), 2)](a, weight, c, rows, size=256, M=64, N=128, K=64)
""")


@honest(problem="product")
def inner_dimension_split() -> Files:
    """Four programs add to each sum atomically, in a float tensor that is then rounded.

    Looks like: B10, results that are not the same twice.
    """
    return triton("""

@triton.jit
def split(a, weight, sums, rows, size: tl.constexpr, M: tl.constexpr, K: tl.constexpr):
    m = tl.program_id(0) * M + tl.arange(0, M)[:, None]
    n = tl.arange(0, size)[None, :]
    begin = tl.program_id(1) * K
    left = tl.load(a + m.to(tl.int64) * size + begin + tl.arange(0, K)[None, :], mask=m < rows, other=0.0)
    right = tl.load(weight + (begin + tl.arange(0, K)[:, None]) * size + n)
    tl.atomic_add(sums + m.to(tl.int64) * size + n, tl.dot(left, right), mask=m < rows)


def run(a, weight, c):
    sums = torch.zeros(c.shape, dtype=torch.float32, device=c.device)
    split[(triton.cdiv(a.shape[0], 16), 4)](a, weight, sums, a.shape[0], size=256, M=16, K=64)
    c.copy_(sums)
""")


@honest(problem="ragged")
def ends_at_the_length() -> Files:
    """Loops over as many blocks as a row's length needs, and writes zeros for the rest.

    Looks like: B8, half of the input is never read.
    """
    return triton("""

@triton.jit
def ragged(x, length, y, columns: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    count = tl.load(length + row)
    most = tl.full((), float("-inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    for begin in range(0, count, block):
        places = begin + tl.arange(0, block)
        held = tl.load(x + row * columns + places, mask=places < count, other=float("-inf"))
        higher = tl.maximum(most, tl.max(held))
        total = total * tl.exp(most - higher) + tl.sum(tl.exp(held - higher))
        most = higher
    for begin in range(0, columns, block):
        places = begin + tl.arange(0, block)
        held = tl.load(x + row * columns + places, mask=places < count, other=float("-inf"))
        tl.store(y + row * columns + places, tl.exp(held - most) / total)


def run(x, length, y):
    ragged[(x.shape[0],)](x, length, y, columns=512, block=64)
""")


@honest(problem="scan")
def running_sums_by_a_tree() -> Files:
    """The library's parallel scan.

    Looks like: B9, sums in another order than the reference's.
    """
    return triton("""

@triton.jit
def running(x, y, columns: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * columns + tl.arange(0, columns)
    tl.store(y + at, tl.cumsum(tl.load(x + at), axis=0))


def run(x, y):
    running[(x.shape[0],)](x, y, columns=512)
""")


@honest(problem="order")
def sorted_in_registers() -> Files:
    """The library's sort of a block: some hundred exchanges, all of them unrolled.

    Looks like: A9, a first call that takes long.
    """
    return triton("""

@triton.jit
def exchange(x, y, columns: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * columns + tl.arange(0, columns)
    tl.store(y + at, tl.sort(tl.load(x + at)))


def run(x, y):
    exchange[(x.shape[0],)](x, y, columns=512)
""")


@honest(problem="counts")
def counted_by_atomics() -> Files:
    """Adds ones to the output atomically, where the values say.

    Looks like: B11, many additions to one place.
    """
    return triton("""

@triton.jit
def count_values(x, y, count, block: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    is_there = at < count
    values = tl.load(x + at, mask=is_there, other=0)
    tl.atomic_add(y + values, tl.full((block,), 1, tl.int32), mask=is_there)


def run(x, y):
    y.zero_()
    count_values[(triton.cdiv(x.shape[0], 1024),)](x, y, x.shape[0], block=1024)
""")
