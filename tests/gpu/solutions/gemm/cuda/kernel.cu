// C[M, N] = A[M, K] B[N, K]^T in bf16 with fp32 sums, for Hopper. One block makes a tile of 128 x BN: one warp asks
// the copy engine for the operands, DEPTH steps of 64 ahead, two warpgroups multiply 64 rows each.
#include <cuda_bf16.h>

#include "tma.cuh"
#include "wgmma.cuh"

constexpr int BM = 128, BK = 64, CONSUMERS = 2, GROUP = 128;
constexpr int A_BYTES = BM * BK * 2;

template <int COUNT> __device__ __forceinline__ void set_registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void set_registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int THREADS> __device__ __forceinline__ void sync_some(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}

// Writes a warpgroup's 64 x BN sums as bf16 where store_2d expects them: tiles of WIDTH columns, each 64 rows of
// WIDTH * 2 bytes, swizzled over that many bytes.
template <int BN, int WIDTH> __device__ __forceinline__ void put(unsigned to, const float (&d)[BN / 2], int thread) {
  const int row = thread / 32 * 16 + thread % 32 / 4, column = 2 * (thread % 4);
#pragma unroll
  for (int j = 0; j < BN / 8; j++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int x = 8 * j % WIDTH + column, y = row + 8 * half;
      unsigned at = y * WIDTH * 2 + x * 2;
      at ^= (at >> 7 & (WIDTH / 8 - 1)) << 4;
      const __nv_bfloat162 pair = __floats2bfloat162_rn(d[4 * j + 2 * half], d[4 * j + 2 * half + 1]);
      const unsigned bits = reinterpret_cast<const unsigned &>(pair);
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + 8 * j / WIDTH * (64 * WIDTH * 2) + at), "r"(bits) : "memory");
    }
}

template <int BN, int DEPTH>
__global__ void __launch_bounds__(GROUP *(1 + CONSUMERS), 1)
    gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c,
         int K) {
  constexpr int B_BYTES = BN * BK * 2;
  constexpr int WIDTH = BN < 64 ? BN : 64;
  extern __shared__ unsigned char raw[];
  __shared__ alignas(8) unsigned long long barriers[2 * DEPTH];
  const unsigned tiles_a = (shared_address(raw) + 1023) / 1024 * 1024;
  const unsigned tiles_b = tiles_a + DEPTH * A_BYTES;
  const unsigned full = shared_address(barriers), empty = full + 8 * DEPTH;
  const int steps = K / BK;
  const int m0 = blockIdx.x * BM, n0 = blockIdx.y * BN;

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < DEPTH; stage++) {
      barrier_init(full + 8 * stage, 1);
      barrier_init(empty + 8 * stage, CONSUMERS * 4);  // one lane of each consuming warp
    }
    barrier_publish();
  }
  __syncthreads();

  if (threadIdx.x < GROUP) {
    set_registers_down<40>();
    if (threadIdx.x == 0)
      for (int step = 0; step < steps; step++) {
        const int stage = step % DEPTH;
        const unsigned round = step / DEPTH;
        barrier_wait(empty + 8 * stage, (round & 1) ^ 1);
        barrier_expect(full + 8 * stage, A_BYTES + B_BYTES);
        load_2d(tiles_a + stage * A_BYTES, &a, full + 8 * stage, step * BK, m0);
        load_2d(tiles_b + stage * B_BYTES, &b, full + 8 * stage, step * BK, n0);
      }
    return;
  }

  set_registers_up<232>();
  const int consumer = threadIdx.x / GROUP - 1, thread = threadIdx.x % GROUP;
  float sums[BN / 2];
#pragma unroll
  for (int i = 0; i < BN / 2; i++) sums[i] = 0;
  for (int step = 0; step < steps; step++) {
    const int stage = step % DEPTH;
    barrier_wait(full + 8 * stage, step / DEPTH & 1);
    const unsigned long long at_a = operand(tiles_a + stage * A_BYTES + consumer * (A_BYTES / CONSUMERS));
    const unsigned long long at_b = operand(tiles_b + stage * B_BYTES);
    multiply_begin();
#pragma unroll
    for (int k = 0; k < BK / 16; k++) multiply<BN>(sums, at_a + 2 * k, at_b + 2 * k, 1);
    multiply_commit();
    multiply_wait<1>();  // the step before has read its stage
    if (step > 0 && thread % 32 == 0) barrier_arrive(empty + 8 * ((step - 1) % DEPTH));
  }
  multiply_wait<0>();

  sync_some<GROUP * CONSUMERS>(1);  // nobody reads the stages any more: the result may lie there
  const unsigned result = tiles_a + consumer * (64 * BN * 2);
  put<BN, WIDTH>(result, sums, thread);
  publish_shared();
  sync_some<GROUP>(2 + consumer);
  if (thread == 0) {
    for (int x = 0; x < BN; x += WIDTH)
      store_2d(&c, result + x / WIDTH * (64 * WIDTH * 2), n0 + x, m0 + 64 * consumer);
    stores_finish();
  }
}
