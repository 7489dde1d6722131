// RMSNorm of bf16 rows of 4096, one block a row. Few rows: one load a thread, so that nothing waits for anything but the
// row. Many rows: fewer threads with more loads each, so that more rows are on their way to a multiprocessor.
//
// FEW           up to how many rows are few
// FEW_THREADS   threads of a block where rows are few
// MANY_THREADS  threads of a block where rows are many
// MANY_EARLY    1 asks for the weight together with such a row, 0 when its sum is known
// MANY_ONCE     1 keeps such rows out of the first cache

constexpr int HIDDEN = 4096;
constexpr float EPSILON = 1e-5f;

__device__ __forceinline__ float2 unpack(unsigned pair) {
  return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000));
}

__device__ __forceinline__ unsigned pack(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ __forceinline__ uint4 load_once(const uint4 *at) {
  uint4 bits;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
      : "l"(at));
  return bits;
}

__device__ __forceinline__ float squares(const uint4 &bits) {
  const float2 a = unpack(bits.x), b = unpack(bits.y), c = unpack(bits.z), d = unpack(bits.w);
  return a.x * a.x + a.y * a.y + b.x * b.x + b.y * b.y + c.x * c.x + c.y * c.y + d.x * d.x + d.y * d.y;
}

__device__ __forceinline__ unsigned scaled(unsigned x, unsigned weight, float scale) {
  const float2 a = unpack(x), b = unpack(weight);
  return pack(a.x * scale * b.x, a.y * scale * b.y);
}

__device__ __forceinline__ uint4 scaled(const uint4 &x, const uint4 &weight, float scale) {
  return make_uint4(scaled(x.x, weight.x, scale), scaled(x.y, weight.y, scale), scaled(x.z, weight.z, scale),
                    scaled(x.w, weight.w, scale));
}

// Keeps the compiler from holding the floats that a register's two halves are, which takes two more registers.
__device__ __forceinline__ void keep_packed(uint4 &bits) {
  asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
}

// Adds over a block of N threads.
template <int N> __device__ __forceinline__ float sum_block(float own, float *of_warp) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) own += __shfl_xor_sync(~0u, own, step);
  if (N == 32) return own;
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < N / 32; warp++) sum += of_warp[warp];
  return sum;
}

// IS_EARLY asks for the weight with the row, IS_ONCE keeps the row out of the first cache.
template <int N, bool IS_EARLY, bool IS_ONCE>
__global__ void __launch_bounds__(N)
    rmsnorm_row(const uint4 *__restrict__ x, const uint4 *__restrict__ weight, uint4 *__restrict__ y) {
  constexpr int LOADS = HIDDEN / 8 / N;
  __shared__ float of_warp[N / 32];
  const size_t row = (size_t)blockIdx.x * (HIDDEN / 8) + threadIdx.x;
  uint4 held[LOADS], gain[LOADS];
#pragma unroll
  for (int i = 0; i < LOADS; i++) held[i] = IS_ONCE ? load_once(x + row + i * N) : x[row + i * N];
#pragma unroll
  for (int i = 0; i < (IS_EARLY ? LOADS : 0); i++) gain[i] = weight[threadIdx.x + i * N];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < LOADS; i++) sum += squares(held[i]);
  const float scale = rsqrtf(sum_block<N>(sum, of_warp) * (1.0f / HIDDEN) + EPSILON);
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
    keep_packed(held[i]);
    y[row + i * N] = scaled(held[i], IS_EARLY ? gain[i] : weight[threadIdx.x + i * N], scale);
  }
}
