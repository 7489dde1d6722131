"""Plans run on a GPU: what a kernel sees of its arguments, memory and launch is what the manifest says."""

from __future__ import annotations

import json
import random
import re
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from swarm.device import Device
from swarm.errors import BadInput
from swarm.judge.cuda.driver import Context, CudaError, Event, Stream
from swarm.judge.cuda.launcher import Launcher, _relocated, encoded
from swarm.languages import cuda_toolkit
from swarm.languages.names import Names
from swarm.languages.plan import Plan
from swarm.languages.protocol import Artifact, CompileLimits
from swarm.languages.steps import Recorded
from swarm.languages.tensormaps import TYPES, TensorMap, numbered
from swarm.languages.tensormaps import resolve as resolve_map
from swarm.problem import problem_from_files
from swarm.sandbox import GIB
from swarm.solution import load_manifest
from tests.test_guides import PROBLEMS, tree

pytestmark = pytest.mark.gpu

Json = dict[str, Any]
Files = Mapping[str, bytes]
HEAD = 'language = "cuda"\nsources = ["kernel.cu"]\n'
DEFINITION: Json = {
    "name": "floats",
    "axes": {"n": {"type": "var"}},
    "inputs": {
        "x": {"shape": ["n"], "dtype": "float32"},
        "a": {"shape": None, "dtype": "float32"},
        "k": {"shape": None, "dtype": "int32"},
        "flag": {"shape": None, "dtype": "bool"},
    },
    "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
    "reference": "def run(x, a, k, flag):\n    return x\n",
}
SCALARS = {"a": 0.75, "k": 3, "flag": True, "eps": 1e-5}
POISON = 0xFF


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    made = Context(0)
    yield made
    made.close()


@pytest.fixture(scope="module")
def stream(context: Context) -> Stream:
    return Stream()


class Bench:
    """One plan on the device, with memory for its calls."""

    def __init__(self, context: Context, stream: Stream, folder: Path, files: Files, content: Json) -> None:
        from swarm.languages.cuda import Cuda

        self.context = context
        self.stream = stream
        facts = context.facts
        arch = cuda_toolkit.arch_for(facts.arch // 10, facts.arch % 10)
        device = Device("cuda", "gpu", facts.uuid, (0,), arch, facts.memory_bytes, facts.num_sms)
        sizes = {name: 4096 for name, axis in content["axes"].items() if axis["type"] == "var"}
        inputs = {
            name: {"type": "random"}
            if spec["shape"] is not None
            else {"type": "scalar", "value": SCALARS[name]}
            for name, spec in content["inputs"].items()
        }
        workload = {"uuid": "one", "axes": sizes, "inputs": inputs}
        problem = problem_from_files(
            {
                "definition.json": json.dumps(content).encode(),
                "workload.jsonl": json.dumps(workload).encode(),
            },
            content["name"],
        )
        limits = CompileLimits(60, 8 * GIB)
        made = Cuda().compile(files, load_manifest(files), problem, device, folder, limits)
        assert isinstance(made, Artifact), f"{made.reason}\n{made.log}"
        plan = Plan.from_json(json.loads((made.path / "plan.json").read_bytes()))
        cubins = {int(path.stem): path.read_bytes() for path in made.path.glob("*.cubin")}
        kernels = json.loads((made.path / "kernels.json").read_bytes())
        self.launcher = Launcher(context, stream, plan, cubins, kernels)
        self._owned: list[int] = []

    def call(self, axes: Mapping[str, int], inputs: Mapping[str, bytes], outputs: Mapping[str, int]) -> None:
        """Run one call; outputs (bytes by name) and scratch are poisoned before."""
        calls = self.launcher.resolve(axes, SCALARS)
        self.addresses = {f"input:{name}": self.memory(len(data)) for name, data in inputs.items()}
        for name, data in inputs.items():
            self.stream.write(self.addresses[f"input:{name}"], data)
        poisoned = {f"output:{name}": size for name, size in outputs.items()} | dict(calls.scratch)
        for name, size in poisoned.items():
            self.addresses[name] = self.memory(size)
            self.stream.set_bytes(self.addresses[name], POISON, size)
        self.launcher.enqueue(self.launcher.prepare(calls, self.addresses))

    def run(self, x: list[float], n: int | None = None) -> list[float]:
        """Run one call and return the output."""
        n = len(x) if n is None else n
        self.call({"n": n}, {"x": struct.pack(f"<{len(x)}f", *x)}, {"y": 4 * n})
        return list(struct.unpack(f"<{n}f", self.stream.read(self.addresses["output:y"], 4 * n)))

    def words(self, x: list[float], n: int | None = None) -> list[int]:
        """Run one call and return the output's bits."""
        n = len(x) if n is None else n
        self.run(x, n)
        return list(struct.unpack(f"<{n}I", self.stream.read(self.addresses["output:y"], 4 * n)))

    def memory(self, nbytes: int) -> int:
        self._owned.append(self.context.allocate(nbytes))
        return self._owned[-1]

    def close(self) -> None:
        self.stream.synchronize()
        for address in self._owned:
            self.context.free(address)


@pytest.fixture
def bench(context: Context, stream: Stream, tmp_path: Path) -> Iterator[Callable[[str, str], Bench]]:
    made: list[Bench] = []

    def make(tables: str, source: str) -> Bench:
        files = {"solution.toml": (HEAD + tables).encode(), "kernel.cu": source.encode()}
        made.append(Bench(context, stream, tmp_path, files, DEFINITION))
        return made[-1]

    yield make
    for item in made:
        item.close()


Make = Callable[[str, str], Bench]


def numbers(count: int) -> list[float]:
    return [float(random.Random(count).randrange(-1000, 1000)) for _ in range(count)]


def needs(context: Context, arch: int) -> None:
    if context.facts.arch < arch:
        pytest.skip(f"this GPU is sm_{context.facts.arch}; sm_{arch} is needed")


SCALE = """
extern "C" __global__ void scale(const float* x, float* y, int n, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * factor;
}
"""
SCALE_LAUNCH = """
[[launch]]
kernel = "scale"
grid = ["ceildiv(n, 256)"]
block = [256]
args = ["x", "y", "n:i32", "a * 2:f32"]
"""


def test_a_kernel_gets_its_memory_and_numbers(bench: Make) -> None:
    x = numbers(1000)
    assert bench(SCALE_LAUNCH, SCALE).run(x) == [value * 1.5 for value in x]


def test_every_type_of_number_arrives_as_it_was_written(bench: Make) -> None:
    source = """
    #include <cuda_bf16.h>
    #include <cuda_fp16.h>
    extern "C" __global__ void show(float* y, signed char i8, short i16, int i32, long long i64,
        unsigned char u8, unsigned short u16, unsigned u32, unsigned long long u64, float f32, double f64,
        __half f16, __nv_bfloat16 bf16, bool flag, const float* x) {
      const double seen[] = {double(i8), double(i16), double(i32), double(i64 >> 32), double(u8), double(u16),
          double(u32 >> 8), double(u64 >> 40), f32, f64 * 1e300, __half2float(f16), __bfloat162float(bf16),
          flag ? 1.0 : 0.0, x[1]};
      for (int i = 0; i < 14; ++i) y[i] = float(seen[i]);
    }
    """
    args = ["y", "-5:i8", "-300:i16", "-70000:i32", "-(2 ** 40):i64", "200:u8", "60000:u16", "2 ** 31:u32",
            "2 ** 62:u64", "a:f32", "2e-300:f64", "1 / 3:f16", "1 / 3:bf16", "flag:bool", "x"]  # fmt: skip
    found = bench(
        f'[[launch]]\nkernel = "show"\ngrid = [1]\nblock = [1]\nargs = {json.dumps(args)}\n', source
    ).run([0.0, 42.0], n=14)
    third = struct.unpack("<e", struct.pack("<e", 1 / 3))[0]
    assert found == [-5, -300, -70000, -256, 200, 60000, 2**23, 2**22, 0.75, 2, third, 0.333984375, 1, 42]


def test_builds_differ_in_their_parameters_and_templates_in_their_arguments(bench: Make) -> None:
    source = """
    template <int ADD> __global__ void add(float* y, int at) { y[at] = FACTOR + ADD; }
    namespace deep { template <typename T> __global__ void size(float* y, int at) { y[at] = sizeof(T); } }
    """
    tables = "[params]\nFACTOR = 10\nADD_MORE = 3\n"
    for at, (kernel, params) in enumerate(
        [("add<1>", ""), ("add<2>", "FACTOR = 20"), ("add<1>", "FACTOR = 20"), ("deep::size<double>", ""),
         ("add<ADD_MORE>", "")]
    ):  # fmt: skip
        tables += f'[[launch]]\nkernel = "{kernel}"\ngrid = [1]\nblock = [1]\nargs = ["y", "{at}:i32"]\n'
        tables += f"params = {{ {params} }}\n" if params else ""
    assert bench(tables, source).run([0.0], n=5) == [11, 22, 21, 8, 13]


def test_launches_memsets_fills_and_repeats_run_in_their_order(bench: Make) -> None:
    source = """
    extern "C" __global__ void step(float* y, const float* s, int i) {
      if (i == 0) { y[0] = s[0]; y[1] = s[1]; y[2] = 0; }
      y[2] = y[2] * 10 + i + 1;
    }
    extern "C" __global__ void last(float* y, const unsigned* s) {
      y[3] = s[0];
      y[4] = s[1] >> 24;
      y[5] = s[2] >> 16;
    }
    """
    tables = """
    [scratch.s]
    dtype = "float32"
    shape = [4]
    fill = 2.5
    [[launch]]
    kernel = "step"
    grid = [1]
    block = [1]
    args = ["y", "s", "i:i32"]
    repeat = "k"
    [[launch]]
    kernel = "last"
    grid = [1]
    block = [1]
    args = ["y", "s"]
    [[memset]]
    target = "s"
    value = 0
    before = 1
    bytes = 4
    [[memset]]
    target = "s"
    value = 7
    before = 1
    offset = 4
    bytes = 8
    [[memset]]
    target = "y"
    value = 0
    before = 2
    offset = 24
    """
    assert bench(tables, source).run([0.0], n=7) == [2.5, 2.5, 123, 0, 7, 0x0707, 0]


@pytest.mark.parametrize(("dtype", "fill", "word"), [
    ("float32", "inf", 0x7F800000), ("bfloat16", "1.0", 0x3F803F80), ("float16", "-2", 0xC000C000),
    ("int32", "-7", 0xFFFFFFF9), ("int64", "-1", 0xFFFFFFFF), ("uint8", "171", 0xABABABAB),
    ("float8_e4m3fn", "0", 0),
])  # fmt: skip
def test_scratch_is_filled_with_numbers_of_its_type(bench: Make, dtype: str, fill: str, word: int) -> None:
    source = """
    extern "C" __global__ void copy(unsigned* y, const unsigned* s) {
      y[threadIdx.x] = s[threadIdx.x];
    }
    """
    tables = f"""
    [scratch.s]
    dtype = "{dtype}"
    shape = [32]
    fill = {fill}
    [[launch]]
    kernel = "copy"
    grid = [1]
    block = [8]
    args = ["y", "s"]
    """
    assert bench(tables, source).words([0.0], n=8) == [word] * 8


def test_a_block_may_have_all_of_the_shared_memory(bench: Make) -> None:
    source = """
    extern "C" __global__ void reverse(const float* x, float* y, int n) {
      extern __shared__ float held[];
      for (int i = threadIdx.x; i < n; i += blockDim.x) held[i] = x[i];
      __syncthreads();
      for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = held[n - 1 - i];
    }
    """
    tables = """
    [[launch]]
    kernel = "reverse"
    grid = [1]
    block = [256]
    smem = "smem_per_block_max"
    args = ["x", "y", "n:i32"]
    """
    made = bench(tables, source)
    x = numbers(made.context.facts.smem_per_block_max // 4)
    assert made.run(x) == x[::-1]


CLUSTER = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void ranks(float* y) {
  __shared__ int mine;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) mine = cluster.block_rank();
  cluster.sync();
  if (threadIdx.x == 0) {
    int sum = 0;
    for (int i = 0; i < int(cluster.num_blocks()); ++i) sum += *cluster.map_shared_rank(&mine, i);
    y[blockIdx.x] = sum * 100 + int(cluster.num_blocks());
  }
  cluster.sync();
}
"""


@pytest.mark.parametrize("size", [2, 8, 16])
def test_the_blocks_of_a_cluster_see_each_other(bench: Make, context: Context, size: int) -> None:
    needs(context, 90)
    tables = f"""
    [[launch]]
    kernel = "ranks"
    grid = ["n"]
    block = [64]
    cluster = [{size}]
    args = ["y"]
    """
    assert bench(tables, CLUSTER).run([0.0], n=32) == [size * (size - 1) / 2 * 100 + size] * 32


def test_occupancy_is_what_the_driver_says(bench: Make, context: Context) -> None:
    needs(context, 90)
    source = """
    extern "C" __global__ void show(float* y, int blocks, int clusters) {
      y[0] = blocks;
      y[1] = clusters;
    }
    """
    tables = """
    [[launch]]
    kernel = "ranks"
    grid = [16]
    block = [128]
    cluster = [16]
    smem = 200000
    args = ["y"]
    [[launch]]
    kernel = "show"
    grid = [1]
    block = [1]
    args = ["y", "max_active_blocks(ranks):i32", "max_active_clusters('ranks'):i32"]
    """
    blocks, clusters = bench(tables, CLUSTER + source).run([0.0], n=16)[:2]
    print(f"{int(clusters)} clusters of 16 with 200 KB on {context.facts.num_sms} multiprocessors")
    assert blocks == 1 and 1 <= clusters <= context.facts.num_sms // 16


def test_a_cooperative_launch_waits_for_the_whole_grid(bench: Make) -> None:
    source = """
    #include <cooperative_groups.h>
    extern "C" __global__ void sums(const float* x, float* y, float* partial, int n) {
      float sum = 0;
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
      atomicAdd(partial, sum);
      cooperative_groups::this_grid().sync();
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = *partial;
    }
    """
    tables = """
    [scratch.partial]
    dtype = "float32"
    shape = [1]
    fill = 0
    [[launch]]
    kernel = "sums"
    grid = ["num_sms * max_active_blocks(kernel)"]
    block = [256]
    cooperative = true
    args = ["x", "y", "partial", "n:i32"]
    """
    x = numbers(20_000)
    assert bench(tables, source).run(x) == [sum(x)] * len(x)


def test_an_overlapping_launch_still_sees_what_it_waits_for(bench: Make, context: Context) -> None:
    needs(context, 90)
    source = """
    extern "C" __global__ void first(const float* x, float* s, int n) {
      asm volatile("griddepcontrol.launch_dependents;");
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s[i] = x[i] + 1;
    }
    extern "C" __global__ void second(const float* s, float* y, int n) {
      asm volatile("griddepcontrol.wait;" ::: "memory");
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = s[n - 1 - i];
    }
    """
    tables = """
    [scratch.s]
    dtype = "float32"
    shape = ["n"]
    [[launch]]
    kernel = "first"
    grid = ["num_sms"]
    block = [256]
    args = ["x", "s", "n:i32"]
    [[launch]]
    kernel = "second"
    grid = ["num_sms"]
    block = [256]
    args = ["s", "y", "n:i32"]
    pdl = true
    """
    x = numbers(300_000)
    assert bench(tables, source).run(x) == [value + 1 for value in reversed(x)]


@pytest.mark.parametrize("pdl", ["false", "true"])
def test_a_call_is_not_over_before_all_of_its_launches(bench: Make, context: Context, pdl: str) -> None:
    """A launch that overlaps and does not wait could end first: the clock must not stop with it."""
    needs(context, 90)
    source = """
    extern "C" __global__ void slow(float* y) {
      asm volatile("griddepcontrol.launch_dependents;");
      unsigned long long start, now;
      asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
      do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
      while (now - start < 2000000);
      y[0] = 1;
    }
    extern "C" __global__ void fast(float* y) { y[1] = 2; }
    """
    tables = f"""
    [[launch]]
    kernel = "slow"
    grid = [1]
    block = [1]
    args = ["y"]
    [[launch]]
    kernel = "fast"
    grid = [1]
    block = [1]
    args = ["y"]
    pdl = {pdl}
    """
    made = bench(tables, source)
    made.run([0.0], n=2)
    prepared = made.launcher.prepare(made.launcher.resolve({"n": 2}, SCALARS), made.addresses)
    start, end = Event(), Event()
    start.record(made.stream)
    made.launcher.enqueue(prepared)
    end.record(made.stream)
    end.synchronize()
    print(f"pdl = {pdl}: {end.us_since(start):.0f} us")
    assert end.us_since(start) >= 2000


TMA = """
#include <cuda.h>
#include <cuda/barrier>
using barrier = cuda::barrier<cuda::thread_scope_block>;
__device__ void load(const CUtensorMap* map, float* to, int bytes, int c0, int c1) {
  __shared__ alignas(8) unsigned long long bar;
  const unsigned at = unsigned(__cvta_generic_to_shared(&bar));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];"
        ::"r"(unsigned(__cvta_generic_to_shared(to))), "l"(map), "r"(c0), "r"(c1), "r"(at) : "memory");
  }
  __syncthreads();
  unsigned done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
        : "=r"(done) : "r"(at) : "memory");
}
extern "C" __global__ void tile(const __grid_constant__ CUtensorMap map, float* y) {
  __shared__ alignas(1024) float held[8 * 32];
  load(&map, held, sizeof held, 32 * blockIdx.x, 8 * blockIdx.y);
  for (int i = threadIdx.x; i < 8 * 32; i += blockDim.x)
    y[((blockIdx.y * gridDim.x + blockIdx.x) * 8 * 32) + i] = held[i];
}
struct Two { CUtensorMap map[2]; };
extern "C" __global__ void both(const __grid_constant__ Two two, float* y) {
  __shared__ alignas(1024) float held[8 * 32];
  load(&two.map[blockIdx.x], held, sizeof held, 0, 0);
  for (int i = threadIdx.x; i < 8 * 32; i += blockDim.x) y[blockIdx.x * 8 * 32 + i] = held[i];
}
extern "C" __global__ void many(const CUtensorMap* maps, float* y) {
  __shared__ alignas(1024) float held[8 * 32];
  load(maps + blockIdx.x, held, sizeof held, 0, 0);
  for (int i = threadIdx.x; i < 8 * 32; i += blockDim.x) y[blockIdx.x * 8 * 32 + i] = held[i];
}
"""
WIDTH, ROWS = 64, 16


def tile(x: list[float], column: int, row: int) -> list[float]:
    """Return 8 rows of 32 columns of a matrix of 16 x 64, NaN-free zeros outside."""
    return [
        x[r * WIDTH + c] if r < ROWS and c < WIDTH else 0.0
        for r in range(row, row + 8)
        for c in range(column, column + 32)
    ]


@pytest.mark.parametrize("swizzle", ["none", 128])
def test_a_tensor_map_as_a_parameter_loads_tiles(bench: Make, context: Context, swizzle: object) -> None:
    needs(context, 90)
    tables = f"""
    [tensormap.tiles]
    of = "x"
    dims = [{WIDTH}, "n // {WIDTH}"]
    box = [32, 8]
    swizzle = {json.dumps(swizzle)}
    [[launch]]
    kernel = "tile"
    grid = [2, 2]
    block = [64]
    args = ["tiles", "y"]
    """
    x = numbers(WIDTH * ROWS)
    found = bench(tables, TMA).run(x)
    wanted = [tile(x, column, row) for row in (0, 8) for column in (0, 32)]
    if swizzle == 128:  # 16-byte chunks of a row of 128 bytes are exchanged by the row's number
        wanted = [
            [rows[r * 32 + ((c // 4) ^ (r % 8)) * 4 + c % 4] for r in range(8) for c in range(32)]
            for rows in wanted
        ]
    assert found == [value for rows in wanted for value in rows]


@pytest.mark.parametrize(("kernel", "place"), [("both", "param"), ("many", "scratch")])
def test_several_tensor_maps_differ_by_their_offset(
    bench: Make, context: Context, kernel: str, place: str
) -> None:
    needs(context, 90)
    tables = f"""
    [tensormap.tiles]
    of = "x"
    dims = [32, 8]
    strides = [{WIDTH * 4}]
    box = [32, 8]
    in = "{place}"
    count = 2
    offset = "i * 8 * {WIDTH} * 4 + i * 128"
    [[launch]]
    kernel = "{kernel}"
    grid = [2]
    block = [64]
    args = ["tiles", "y"]
    """
    x = numbers(WIDTH * ROWS)
    assert bench(tables, TMA).run(x)[:512] == tile(x, 0, 0) + tile(x, 32, 8)


def test_a_tensor_map_fills_what_lies_outside(bench: Make, context: Context) -> None:
    needs(context, 90)
    tables = f"""
    [tensormap.tiles]
    of = "x"
    dims = [20, 6]
    strides = [{WIDTH * 4}]
    box = [32, 8]
    fill = "nan"
    [[launch]]
    kernel = "tile"
    grid = [1]
    block = [64]
    args = ["tiles", "y"]
    """
    x = numbers(WIDTH * ROWS)
    found = bench(tables, TMA).run(x)[:256]
    for at, value in enumerate(found):
        row, column = divmod(at, 32)
        assert value == x[row * WIDTH + column] if row < 6 and column < 20 else value != value


def random_map(rng: random.Random) -> TensorMap:
    """Return a map of some kind; many of them are wrong in one respect."""
    rank = rng.randint(1, 5)
    dtype = rng.choice(list(TYPES))
    width = TYPES[dtype][1]
    dims = [rng.choice([16, 32, 64, 128, 24, 7]) // rng.choice([1, 1, width]) or 1] + [
        rng.randint(1, 20) for _ in range(rank - 1)
    ]
    box = [rng.choice([16, 32, 64, 128, 256, 48, 8]) // width or 1] + [
        rng.choice([1, 2, 8, 16, 256, 300]) for _ in range(rank - 1)
    ]
    strides = None
    if rng.random() < 0.3:
        strides = tuple(str(rng.choice([16, 32, 64, 24, 512, 4096])) for _ in range(rank - 1))
    steps = tuple(str(rng.choice([1, 1, 1, 2, 8, 9])) for _ in range(rank)) if rng.random() < 0.2 else None
    return TensorMap(
        buffer="input:x",
        dtype=dtype,
        dims=tuple(map(str, dims)),
        strides=strides,
        box=tuple(map(str, box)),
        element_strides=steps,
        swizzle=rng.choice([0, 0, 32, 64, 128]),
        interleave=rng.choice([0, 0, 0, 16, 32]),
        l2=rng.choice([0, 64, 128, 256]),
        is_nan_filled=rng.random() < 0.2,
        in_memory=False,
        count="1",
        index="i",
        offset="0",
    )


def test_the_driver_takes_every_tensor_map_that_passes_the_dry_run(context: Context) -> None:
    needs(context, 90)
    rng = random.Random(1)
    address = context.allocate(1 << 20)
    outcomes: Counter[tuple[bool, bool]] = Counter()
    differing: Counter[str] = Counter()
    for _ in range(5000):
        item = random_map(rng)
        spec = numbered(item, Names({}), "t")
        try:
            resolve_map(item, Names({}), {"input:x": 1 << 40}, "t")
            ours = ""
        except BadInput as error:
            ours = str(error)
        try:
            encoded(spec, address, "t")
            theirs = True
        except BadInput:
            theirs = False
        outcomes[not ours, theirs] += 1
        if bool(ours) is theirs:
            what = ours or f"{spec.type} {spec.interleave} {spec.swizzle} {spec.oob} box {spec.box}"
            differing[re.sub(r"\d+", "#", what) if ours else what] += 1
    context.free(address)
    print(f"(ours, the driver's): {dict(outcomes)}")
    for what, count in differing.most_common(40):
        print(f"  {count} {what}")
    assert outcomes[True, True] > 100 and outcomes[True, False] == 0


def test_a_recorded_tensor_map_is_one_of_its_new_memory(context: Context) -> None:
    needs(context, 90)
    rng = random.Random(2)
    before, after = context.allocate(1 << 20), context.allocate(1 << 20)
    seen = 0
    for _ in range(200):
        spec = numbered(random_map(rng), Names({}), "t")
        try:
            recorded = Recorded(encoded(spec, before + 256, "t"), (), ((0, "input:x", 512),))
        except BadInput:
            continue
        assert _relocated(recorded, {"input:x": after}) == encoded(spec, after + 512, "t")
        seen += 1
    for address in (before, after):
        context.free(address)
    assert seen > 20


def test_a_call_is_queued_again_at_other_addresses(bench: Make, context: Context) -> None:
    made = bench(SCALE_LAUNCH, SCALE)
    calls = made.launcher.resolve({"n": 4}, SCALARS)
    prepared = []
    for number in range(8):
        x, y = made.memory(16), made.memory(16)
        made.stream.write(x, struct.pack("<4f", *[number + 1.0] * 4))
        prepared.append((made.launcher.prepare(calls, {"input:x": x, "output:y": y}), y))
    for item, _ in prepared:
        made.launcher.enqueue(item)
    assert [struct.unpack("<f", made.stream.read(y, 4))[0] for _, y in prepared] == [
        1.5 * (number + 1) for number in range(8)
    ]


def test_a_launch_costs_little_on_the_host(bench: Make, context: Context) -> None:
    made = bench(SCALE_LAUNCH, SCALE)
    calls = made.launcher.resolve({"n": 4}, SCALARS)
    prepared = made.launcher.prepare(calls, {"input:x": made.memory(16), "output:y": made.memory(16)})
    times = []
    for _ in range(20):
        made.stream.synchronize()
        start = time.perf_counter_ns()
        for _ in range(100):
            made.launcher.enqueue(prepared)
        times.append((time.perf_counter_ns() - start) / 100)
    start = time.perf_counter_ns()
    for _ in range(100):
        made.launcher.prepare(calls, {"input:x": 256, "output:y": 512})
    preparing = (time.perf_counter_ns() - start) / 100
    print(f"launch {sorted(times)[10] / 1e3:.2f} us, prepare {preparing / 1e3:.1f} us")
    assert sorted(times)[10] < 1e6  # a launch that waits for the GPU would take longer


def test_a_launch_that_the_driver_refuses_is_named(bench: Make, context: Context) -> None:
    made = bench(SCALE_LAUNCH, SCALE)
    with pytest.raises(BadInput, match=r"launch\[0\].grid\[0\]: 'ceildiv\(n, 256\)' is 0 with n = 0"):
        made.launcher.resolve({"n": 0}, SCALARS)
    calls = made.launcher.resolve({"n": 4}, SCALARS)
    other = type(calls.steps[0])(**{**_fields(calls.steps[0]), "block": (2048, 1, 1)})
    broken = made.launcher.prepare(
        type(calls)((other,), calls.scratch, calls.filled, calls.maps), {"input:x": 256, "output:y": 512}
    )
    with pytest.raises(CudaError, match=r"launch\[0\] of scale: CUDA_ERROR_INVALID_VALUE"):
        made.launcher.enqueue(broken)


def _fields(step: Any) -> Mapping[str, Any]:
    return {name: getattr(step, name) for name in type(step).__slots__}


@pytest.mark.parametrize(("rows", "cols"), [(1, 1024), (8, 72), (72, 1024), (2048, 4096), (8, 100_000)])
@pytest.mark.parametrize("number", range(3))
def test_the_examples_of_the_guide_compute_what_they_say(
    context: Context, stream: Stream, tmp_path: Path, number: int, rows: int, cols: int
) -> None:
    import torch

    needs(context, 90)
    rows += -rows % 8 if number == 2 else 0
    dtype = torch.float32 if number == 1 else torch.bfloat16
    inputs = {"x": torch.randn(rows, 4096 if number == 0 else cols).to(dtype)}
    if number == 0:
        inputs["weight"] = torch.randn(4096).to(dtype)
        x = inputs["x"].float()
        wanted = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * inputs["weight"].float()
    else:
        wanted = inputs["x"].sum(-1) if number == 1 else inputs["x"].T.contiguous()
    content = {"name": "example", **PROBLEMS[number]}
    made = Bench(context, stream, tmp_path, tree(number), content)
    axes = {"rows": rows} if number == 0 else {"rows": rows, "cols": cols}
    nbytes = wanted.numel() * dtype.itemsize
    made.call(axes, {name: _bytes(item) for name, item in inputs.items()}, {"y": nbytes})
    data = bytearray(stream.read(made.addresses["output:y"], nbytes))
    made.close()
    found = torch.frombuffer(data, dtype=dtype).reshape(wanted.shape)
    torch.testing.assert_close(found.float(), wanted.float(), rtol=0.01, atol=0.02)
    if number == 2:
        assert torch.equal(found, wanted)


def _bytes(tensor: Any) -> bytes:
    import torch

    return bytes(tensor.contiguous().view(torch.uint8).numpy().tobytes())
