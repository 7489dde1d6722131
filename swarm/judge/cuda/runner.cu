// What a runner queues around a candidate's call: time to queue ahead, cold caches, marks for a tracer.
#include "veil.h"

__device__ u64 now_ns() {
  u64 ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

// Keep the GPU busy, with one warp, until `ns` nanoseconds are over.
extern "C" __global__ void swarm_spin(u64 ns) {
  const u64 begun = now_ns();
  while (now_ns() - begun < ns) {
  }
}

// Write a range, so that all lines of the L2 are its lines; `nbytes` is a multiple of 256.
extern "C" __global__ void swarm_flush_write(void *to, u64 nbytes) {
  const u64 stride = (u64)gridDim.x * blockDim.x;
  uint4 *at = (uint4 *)to;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < nbytes / 16; i += stride)
    at[i] = make_uint4((unsigned)i, 0u, 0u, 0u);
}

// Read a range, so that the lines of the L2 are clean ones.
extern "C" __global__ void swarm_flush_read(const void *from, u64 nbytes) {
  const u64 stride = (u64)gridDim.x * blockDim.x;
  const uint4 *at = (const uint4 *)from;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < nbytes / 16; i += stride) {
    unsigned a, b, c, d;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "l"(at + i));
  }
}

// Fill a range with eight bytes over and over; `to` is a multiple of 8.
extern "C" __global__ void swarm_poison(void *to, u64 nbytes, u64 pattern) {
  const u64 stride = (u64)gridDim.x * blockDim.x, thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  u64 *at = (u64 *)to;
  for (u64 i = thread; i < nbytes / 8; i += stride) at[i] = pattern;
  unsigned char *rest = (unsigned char *)(at + nbytes / 8);
  if (thread < nbytes % 8) rest[thread] = (unsigned char)(pattern >> (8 * thread));
}

extern "C" __global__ void swarm_open() {}
extern "C" __global__ void swarm_close() {}
