// Runs kernels on the CPU, so that what they compute can be tested without a GPU: blocks one after the other,
// the threads of a block as fibers that switch at barriers. Include it before the kernels.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

namespace emulator {

struct Dim {
  unsigned x, y, z;
};
constexpr unsigned WARP = 32;
constexpr size_t STACK_BYTES = 1 << 16;

struct Barrier {
  unsigned arrived = 0, generation = 0;
};

struct Block {
  std::vector<ucontext_t> fibers;
  std::vector<char> stacks, done;
  ucontext_t scheduler;
  unsigned current = 0;
  Barrier all;
  std::vector<Barrier> warps;
  std::vector<unsigned long long> lanes;
  std::function<void()> body;
};

inline Block *block;

inline void yield() { swapcontext(&block->fibers[block->current], &block->scheduler); }

inline void wait_at(Barrier &barrier, unsigned count) {
  const unsigned generation = barrier.generation;
  if (++barrier.arrived == count) {
    barrier.arrived = 0, barrier.generation++;
    return;
  }
  while (barrier.generation == generation) yield();
}

inline void start_fiber() {
  block->body();
  block->done[block->current] = 1;
  yield();
}

}  // namespace emulator

inline emulator::Dim threadIdx, blockIdx, blockDim, gridDim;

#define __global__
#define __device__ inline
#define __forceinline__
#define __noinline__
#define __shared__ static
#define __launch_bounds__(threads)

namespace emulator {

inline void run(unsigned grid, unsigned threads, const std::function<void()> &body) {
  blockDim = {threads, 1, 1}, gridDim = {grid, 1, 1};
  for (unsigned number = 0; number < grid; number++) {
    Block own;
    block = &own;
    own.body = body;
    own.fibers.resize(threads), own.done.assign(threads, 0), own.stacks.resize(threads * STACK_BYTES);
    own.warps.resize(threads / WARP), own.lanes.resize(threads);
    blockIdx = {number, 0, 0};
    for (unsigned thread = 0; thread < threads; thread++) {
      getcontext(&own.fibers[thread]);
      own.fibers[thread].uc_stack.ss_sp = own.stacks.data() + thread * STACK_BYTES;
      own.fibers[thread].uc_stack.ss_size = STACK_BYTES;
      own.fibers[thread].uc_link = &own.scheduler;
      makecontext(&own.fibers[thread], start_fiber, 0);
    }
    for (bool alive = true; alive;) {
      alive = false;
      for (unsigned thread = 0; thread < threads; thread++) {
        if (own.done[thread]) continue;
        alive = true;
        own.current = thread, threadIdx = {thread, 0, 0};
        swapcontext(&own.scheduler, &own.fibers[thread]);
      }
    }
  }
}

}  // namespace emulator

inline void __syncthreads() { emulator::wait_at(emulator::block->all, blockDim.x); }

template <typename T>
T __shfl_xor_sync(unsigned, T value, int lane) {
  const unsigned thread = threadIdx.x;
  emulator::Barrier &warp = emulator::block->warps[thread / emulator::WARP];
  memcpy(&emulator::block->lanes[thread], &value, sizeof(T));
  emulator::wait_at(warp, emulator::WARP);
  T other;
  memcpy(&other, &emulator::block->lanes[thread ^ (unsigned)lane], sizeof(T));
  emulator::wait_at(warp, emulator::WARP);
  return other;
}

inline int __any_sync(unsigned, int value) {
  int any = value != 0;
  for (int lane = 16; lane; lane /= 2) any |= __shfl_xor_sync(~0u, any, lane);
  return any;
}

template <typename T>
T atomicMax(T *at, T value) {
  const T before = *at;
  if (value > before) *at = value;
  return before;
}

template <typename T>
T atomicAdd(T *at, T value) {
  const T before = *at;
  *at += value;
  return before;
}

template <typename T>
T atomicOr(T *at, T value) {
  const T before = *at;
  *at |= value;
  return before;
}
