"""`cuda_cpp` candidates for the problem `rows`."""

from __future__ import annotations

from tests.corpus.cases import Files, cuda_cpp

SOURCE = """\
#include "problem.h"
#include <cuda_runtime.h>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#define GLUE(a, b) a##b
// One warp for each row; it first waits for so many nanoseconds.
__global__ void rows_of(const float* x, const float* w, float* y, int64_t wait) {
  unsigned long long begun, now;
  asm volatile("mov.u64 %%0, %%%%globaltimer;" : "=l"(begun));
  do asm volatile("mov.u64 %%0, %%%%globaltimer;" : "=l"(now));
  while (now - begun < wait);
  const int64_t row = blockIdx.x;
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += 32) sum += x[row * columns + i] * x[row * columns + i];
  for (int lane = 16; lane; lane /= 2) sum += __shfl_xor_sync(~0u, sum, lane);
  const float scale = rsqrtf(sum / columns + 1e-5f);
  for (int i = threadIdx.x; i < columns; i += 32) y[row * columns + i] = x[row * columns + i] * scale * w[i];
}
%s
extern "C" void run(const float* x, const float* w, float* y, int64_t rows, cudaStream_t stream) {
%s
}
"""
HONEST = "rows_of<<<rows, 32, 0, stream>>>(x, w, y, 0);"
SIDE = "static cudaStream_t side = 0;\nif (!side) cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);\n"


def native(body: str, head: str = "") -> Files:
    """Return a tree whose `run` has this body; `rows_of` is honest, GLUE makes names that no scan reads."""
    return cuda_cpp(SOURCE % (head, body))
