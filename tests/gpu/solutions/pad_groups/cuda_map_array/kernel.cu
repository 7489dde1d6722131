// A frame around each matrix of a group. A descriptor per group lies in device memory; what it says is outside of the
// matrix (4 columns on either side, rows below) arrives as NaN and is written as -1.
#include "tma.cuh"

constexpr int ROWS = 8, COLS = 72;

extern "C" __global__ void __launch_bounds__(128)
    pad_groups(const TensorMap *maps, float *y, int padded_rows) {
  __shared__ alignas(128) float tile[ROWS][COLS];
  __shared__ alignas(8) unsigned long long barrier;
  const int group = blockIdx.y, row0 = blockIdx.x * ROWS;
  if (threadIdx.x == 0) {
    barrier_init(shared_address(&barrier), 1);
    barrier_publish();
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(maps + group) : "memory");
    barrier_expect(shared_address(&barrier), sizeof tile);
    load_2d(shared_address(tile), maps + group, shared_address(&barrier), -4, row0);
  }
  __syncthreads();
  barrier_wait(shared_address(&barrier), 0);
  for (int i = threadIdx.x; i < ROWS * COLS; i += 128) {
    const int row = row0 + i / COLS;
    const float value = tile[i / COLS][i % COLS];
    if (row < padded_rows) y[((size_t)group * padded_rows + row) * COLS + i % COLS] = value == value ? value : -1.0f;
  }
}
