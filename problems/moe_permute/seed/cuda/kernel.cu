// Sorts copies of tokens by expert in three launches: a block per expert counts its rows, then gives each of them its place
// in the order of the tokens; a block per row copies the token.
//
// THREADS       threads of a block that counts or gives out places
// COPY_THREADS  threads of a block that copies
#include "problem.h"

extern "C" __global__ void __launch_bounds__(THREADS) count(const int *chosen, int *counts, int rows) {
  __shared__ int of_thread[THREADS];
  int own = 0;
  for (int i = threadIdx.x; i < rows; i += THREADS) own += chosen[i] == blockIdx.x;
  of_thread[threadIdx.x] = own;
  __syncthreads();
  if (threadIdx.x > 0) return;
  int all = 0;
  for (int thread = 0; thread < THREADS; thread++) all += of_thread[thread];
  counts[blockIdx.x] = all;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    give_places(const int *chosen, const int *counts, int *ends, int *position, int rows) {
  __shared__ int upto[2][THREADS];  // how many of the threads up to this one hold a row of the expert
  int begin = 0;
  for (int expert = 0; expert < blockIdx.x; expert++) begin += counts[expert];
  if (threadIdx.x == 0) ends[blockIdx.x] = begin + counts[blockIdx.x];
  for (int first = 0; first < rows; first += THREADS) {
    const int i = first + threadIdx.x;
    const bool is_mine = i < rows && chosen[i] == blockIdx.x;
    int side = 0;
    upto[side][threadIdx.x] = is_mine;
    for (int step = 1; step < THREADS; step *= 2) {
      __syncthreads();
      const int before = threadIdx.x >= step ? upto[side][threadIdx.x - step] : 0;
      upto[1 - side][threadIdx.x] = upto[side][threadIdx.x] + before;
      side = 1 - side;
    }
    __syncthreads();
    if (is_mine) position[i] = begin + upto[side][threadIdx.x] - 1;
    begin += upto[side][THREADS - 1];
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(COPY_THREADS)
    copy(const uint4 *hidden_states, const int *position, uint4 *permuted) {
  constexpr int CHUNKS = hidden / 8;  // of 16 bytes
  const size_t from = blockIdx.x / top_k, to = position[blockIdx.x];
  for (int c = threadIdx.x; c < CHUNKS; c += COPY_THREADS) permuted[to * CHUNKS + c] = hidden_states[from * CHUNKS + c];
}
