// Five dimensions in reverse order: a block takes one index of the outermost dimension, as one 5-D box whose rows of 64
// bytes arrive swizzled.
#include "tma.cuh"

constexpr int W = 6, P = 5, Q = 4, R = 32;

extern "C" __global__ void __launch_bounds__(256)
    permute5(const __grid_constant__ TensorMap x, unsigned short *y, int size_v) {
  __shared__ alignas(1024) unsigned char box[W * P * Q * R * 2];
  __shared__ alignas(8) unsigned long long barrier;
  const int v = blockIdx.x;
  if (threadIdx.x == 0) {
    const unsigned done = shared_address(&barrier);
    barrier_init(done, 1);
    barrier_publish();
    barrier_expect(done, sizeof box);
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
        "[%2];" ::"r"(shared_address(box)),
        "l"(&x), "r"(done), "r"(0), "r"(0), "r"(0), "r"(0), "r"(v)
        : "memory");
  }
  __syncthreads();
  barrier_wait(shared_address(&barrier), 0);
  for (int i = threadIdx.x; i < W * P * Q * R; i += 256) {
    const int r = i % R, q = i / R % Q, p = i / (R * Q) % P, w = i / (R * Q * P);
    unsigned at = i * 2;
    at ^= (at >> 7 & 3) << 4;  // the 64-byte swizzle
    y[((((size_t)r * Q + q) * P + p) * W + w) * size_v + v] = *reinterpret_cast<const unsigned short *>(box + at);
  }
}
