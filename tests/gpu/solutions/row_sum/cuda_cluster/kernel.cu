// Sums of rows. A cluster of blocks adds one row after the other; its blocks send their parts into the shared memory of
// the first of them. As many clusters as fit stay for all rows.
//
// CLUSTER   blocks of a cluster

__device__ __forceinline__ unsigned in_block(const void *at, unsigned block) {
  unsigned result;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(result)
      : "r"(static_cast<unsigned>(__cvta_generic_to_shared(at))), "r"(block));
  return result;
}

__device__ __forceinline__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(256) row_sum(const float *x, float *total, int rows, int cols) {
  __shared__ float of_warp[8];
  __shared__ float of_block[CLUSTER];
  const unsigned rank = blockIdx.x % CLUSTER;  // the cluster lies along x
  sync_cluster();  // a block's shared memory is there once it runs
  for (int row = blockIdx.x / CLUSTER; row < rows; row += gridDim.x / CLUSTER) {
    float sum = 0;
    for (int col = rank * 256 + threadIdx.x; col < cols; col += CLUSTER * 256) sum += x[(size_t)row * cols + col];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
      float of_all = 0;
      for (int warp = 0; warp < 8; warp++) of_all += of_warp[warp];
      asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(in_block(&of_block[rank], 0)), "f"(of_all) : "memory");
    }
    sync_cluster();
    if (rank == 0 && threadIdx.x == 0) {
      float of_all = 0;
      for (int block = 0; block < CLUSTER; block++) of_all += of_block[block];
      total[row] = of_all;
    }
    sync_cluster();  // nobody sends the next row's part, or leaves, before this one is read
  }
}
