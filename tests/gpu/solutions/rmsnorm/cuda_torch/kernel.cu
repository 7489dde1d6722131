// RMSNorm of bf16 rows of 4096 as a torch extension, the form in which SOL-ExecBench takes CUDA C++.
#include <ATen/cuda/CUDAContext.h>
#include <cuda_bf16.h>
#include <torch/extension.h>

constexpr int HIDDEN = 4096, THREADS = HIDDEN / 8;

__global__ void __launch_bounds__(THREADS)
    rmsnorm(const __nv_bfloat16 *x, const __nv_bfloat16 *weight, __nv_bfloat16 *y) {
  __shared__ float of_warp[THREADS / 32];
  const size_t row = (size_t)blockIdx.x * HIDDEN;
  float held[8], sum = 0;
  for (int i = 0; i < 8; i++) {
    held[i] = __bfloat162float(x[row + threadIdx.x + i * THREADS]);
    sum += held[i] * held[i];
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  float all = 0;
  for (int warp = 0; warp < THREADS / 32; warp++) all += of_warp[warp];
  const float scale = rsqrtf(all / HIDDEN + 1e-5f);
  for (int i = 0; i < 8; i++) {
    const int column = threadIdx.x + i * THREADS;
    y[row + column] = __float2bfloat16(held[i] * scale * __bfloat162float(weight[column]));
  }
}

void run(torch::Tensor hidden_states, torch::Tensor weight, torch::Tensor output) {
  const int rows = hidden_states.size(0);
  if (rows == 0) return;
  rmsnorm<<<rows, THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(
      reinterpret_cast<const __nv_bfloat16 *>(hidden_states.data_ptr()),
      reinterpret_cast<const __nv_bfloat16 *>(weight.data_ptr()), reinterpret_cast<__nv_bfloat16 *>(output.data_ptr()));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
