"""`cuda` candidates for the problem `rows`."""

from __future__ import annotations

from tests.corpus.cases import Files, plan

HEAD = """\
#include "problem.h"
#define GLUE(a, b) a##b
__device__ float scale_of(const float* x, int64_t row) {
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += 32) sum += x[row * columns + i] * x[row * columns + i];
  for (int lane = 16; lane; lane /= 2) sum += __shfl_xor_sync(~0u, sum, lane);
  return rsqrtf(sum / columns + 1e-5f);
}
__device__ void scaled(const float* x, const float* w, float* y, int64_t row, float scale) {
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    y[row * columns + i] = x[row * columns + i] * scale * w[i];
}
__device__ void honest(const float* x, const float* w, float* y, int64_t row) {
  scaled(x, w, y, row, scale_of(x, row));
}
"""
PARAMETERS = "const float* x, const float* w, float* y, int64_t rows"
LAUNCH = """
[[launch]]
kernel = "kernel"
grid = ["rows"]
block = [32]
args = ["x", "w", "y", "rows:i64"]
"""


def device(body: str, head: str = "", tables: str = LAUNCH, parameters: str = PARAMETERS) -> Files:
    """Return a plan of one kernel, a warp for each row, whose body this is."""
    kernel = f'extern "C" __global__ void kernel({parameters}) {{\n  const int64_t row = blockIdx.x;\n'
    return plan(f"{HEAD}{head}{kernel}{body}\n}}\n", tables)
