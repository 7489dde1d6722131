// Softmax of rows: one block a row, three passes.
__device__ float over_block(float own, bool is_max) {
  __shared__ float all[256];
  __syncthreads();
  all[threadIdx.x] = own;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      const float other = all[threadIdx.x + half];
      all[threadIdx.x] = is_max ? fmaxf(all[threadIdx.x], other) : all[threadIdx.x] + other;
    }
  }
  __syncthreads();
  return all[0];
}

extern "C" __global__ void softmax_simple(const float *x, float *y, int cols) {
  x += (size_t)blockIdx.x * cols;
  y += (size_t)blockIdx.x * cols;
  float top = x[0], sum = 0;
  for (int col = threadIdx.x; col < cols; col += 256) top = fmaxf(top, x[col]);
  top = over_block(top, true);
  for (int col = threadIdx.x; col < cols; col += 256) sum += expf(x[col] - top);
  sum = over_block(sum, false);
  for (int col = threadIdx.x; col < cols; col += 256) y[col] = expf(x[col] - top) / sum;
}
