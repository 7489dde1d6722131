// Runs device code on the CPU, to see without a GPU whether a kernel computes the right thing: blocks one after the
// other, the threads of a block as fibers that change at barriers. No inline PTX, no memory model.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace emulator {

constexpr unsigned WARP = 32;
constexpr size_t STACK_BYTES = 1 << 16;

struct Dim {
  unsigned x, y, z;
};

struct Barrier {
  unsigned expected = 0, arrived = 0, generation = 0;

  void open_if_full() {
    if (expected > 0 && arrived == expected) arrived = 0, generation++;
  }
};

struct Block {
  std::vector<ucontext_t> fibers;
  std::vector<char> done;
  std::vector<Barrier> warps;
  std::vector<unsigned long long> lanes;
  Barrier all;
  ucontext_t scheduler;
  unsigned current = 0;
  const std::function<void()> *body = nullptr;
};

inline Block *block;
inline std::vector<unsigned char> dynamic;  // shared memory of the launch
inline std::unique_ptr<char[]> stacks;

inline void wait_at(Barrier &barrier) {
  const unsigned generation = barrier.generation;
  barrier.arrived++;
  barrier.open_if_full();
  while (barrier.generation == generation) swapcontext(&block->fibers[block->current], &block->scheduler);
}

inline void start_fiber() {
  (*block->body)();
  block->done[block->current] = 1;
  for (Barrier *barrier : {&block->all, &block->warps[block->current / WARP]}) {
    barrier->expected--;  // who has left is waited for no longer
    barrier->open_if_full();
  }
  swapcontext(&block->fibers[block->current], &block->scheduler);
}

}  // namespace emulator

inline emulator::Dim threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

inline void run_block(unsigned threads, const std::function<void()> &body) {
  Block own;
  block = &own;
  own.body = &body;
  own.fibers.resize(threads), own.done.resize(threads), own.lanes.resize(threads);
  own.warps.resize((threads + WARP - 1) / WARP);
  own.all.expected = threads;
  for (unsigned thread = 0; thread < threads; thread++) {
    own.warps[thread / WARP].expected++;
    getcontext(&own.fibers[thread]);
    own.fibers[thread].uc_stack = {stacks.get() + thread * STACK_BYTES, 0, STACK_BYTES};
    makecontext(&own.fibers[thread], start_fiber, 0);
  }
  for (bool is_alive = true; is_alive;) {
    is_alive = false;
    for (unsigned thread = 0; thread < threads; thread++) {
      if (own.done[thread]) continue;
      is_alive = true;
      own.current = thread;
      threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / (blockDim.x * blockDim.y)};
      swapcontext(&own.scheduler, &own.fibers[thread]);
    }
  }
}

template <class... Parameters, size_t... Index>
void call(void (*kernel)(Parameters...), const unsigned char *const *arguments, std::index_sequence<Index...>) {
  kernel(*reinterpret_cast<const std::remove_cv_t<Parameters> *>(arguments[Index])...);
}

// Launches a kernel whose arguments lie at these addresses.
template <class... Parameters>
void launch(void (*kernel)(Parameters...), const unsigned *grid, const unsigned *size, size_t smem_bytes,
            const unsigned char *const *arguments) {
  const std::function<void()> body = [=] { call(kernel, arguments, std::index_sequence_for<Parameters...>()); };
  const unsigned threads = size[0] * size[1] * size[2];
  gridDim = {grid[0], grid[1], grid[2]}, blockDim = {size[0], size[1], size[2]};
  dynamic.assign(smem_bytes + 16, 0xff);
  stacks.reset(new char[threads * STACK_BYTES]);
  for (unsigned z = 0; z < grid[2]; z++)
    for (unsigned y = 0; y < grid[1]; y++)
      for (unsigned x = 0; x < grid[0]; x++) blockIdx = {x, y, z}, run_block(threads, body);
}

}  // namespace emulator

#undef __global__
#undef __device__
#undef __shared__
#undef __constant__
#undef __launch_bounds__
#undef __forceinline__
#define __global__
#define __device__
#define __constant__ const
#define __shared__ static
#define __launch_bounds__(...)
#define __forceinline__ inline

inline void __syncthreads() { emulator::wait_at(emulator::block->all); }
inline void __threadfence() {}
inline void __nanosleep(unsigned) {}

inline int __syncthreads_or(int is_so) {
  static int any;
  __syncthreads();
  any = 0;
  __syncthreads();
  any |= is_so;
  __syncthreads();
  return any != 0;
}

namespace emulator {

// What the thread numbered `other` of this block holds, if it is of this warp.
template <class T> T exchanged(T value, unsigned other) {
  const unsigned thread = block->current;
  Barrier &warp = block->warps[thread / WARP];
  memcpy(&block->lanes[thread], &value, sizeof value);
  wait_at(warp);
  if (other / WARP == thread / WARP) memcpy(&value, &block->lanes[other], sizeof value);
  wait_at(warp);
  return value;
}

}  // namespace emulator

template <class T> T __shfl_xor_sync(unsigned, T value, int lane) {
  return emulator::exchanged(value, emulator::block->current ^ lane);
}
template <class T> T __shfl_up_sync(unsigned, T value, int step) {
  return emulator::exchanged(value, emulator::block->current - step);
}

template <class T> T atomicAdd(T *at, T value) {
  const T before = *at;
  *at += value;
  return before;
}
inline unsigned atomicInc(unsigned *at, unsigned last) {
  const unsigned before = *at;
  *at = before >= last ? 0 : before + 1;
  return before;
}
inline int atomicMax(int *at, int value) {
  const int before = *at;
  *at = before > value ? before : value;
  return before;
}
template <class T> T __ldcs(const T *at) { return *at; }
template <class T> T __ldcg(const T *at) { return *at; }
template <class T> void __stcs(T *at, T value) { *at = value; }
template <class T> void __stcg(T *at, T value) { *at = value; }
template <class To, class From> To bits_as(From from) {
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
inline float __uint_as_float(unsigned bits) { return bits_as<float>(bits); }
inline float __int_as_float(int bits) { return bits_as<float>(bits); }
inline int __float_as_int(float value) { return bits_as<int>(value); }
inline float __expf(float x) { return expf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline int min(int a, int b) { return a < b ? a : b; }
