// What keeps the calls of one request apart, though all their slots lie open at once: inputs that cannot be read
// before their call, and sums that tell whether an output was changed after its call.
#pragma once
#include "contents.h"

constexpr u32 RANGES = 16;
constexpr u64 CHUNK = 256, WHOLE_BYTES = 16 << 20, STEP = 8;  // a chunk is 4 KiB of vectors
constexpr u64 LINE = 128;

struct Ranges {  // tensors of one slot: where they begin, multiples of 256, and how many bytes each has
  u64 addresses[RANGES], sizes[RANGES];
};

// The pad of a vector of one range.
RULE uint4 pad_of(u32 range, u64 vector, u64 key) { return philox(vector | (u64)range << 56, key); }

// Let a line of the L2 that somebody asked to keep be one like others, so that a flush evicts it.
RULE void demote(u64 address) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"(address) : "memory");
#endif
}

// Make ranges unreadable, and readable again the second time: the pads are XORed into all of a small one, and
// into each eighth chunk of a large one, of which nobody can compute the whole ahead at any gain.
extern "C" __global__ void swarm_veil(Ranges ranges, u64 key) {
  const u32 range = blockIdx.y;
  const u64 address = ranges.addresses[range], nbytes = ranges.sizes[range];
  const u64 step = nbytes > WHOLE_BYTES ? STEP : 1, vectors = nbytes / 16;
  const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, threads = (u64)gridDim.x * blockDim.x;
  for (u64 line = thread; line * LINE < nbytes; line += threads) demote(address + line * LINE);
  uint4 *at = (uint4 *)address;
  for (u64 i = thread; i < vectors; i += threads) {
    const u64 vector = i / CHUNK * step * CHUNK + i % CHUNK;
    if (vector >= vectors) break;
    const uint4 pad = pad_of(range, vector, key), found = at[vector];
    at[vector] = uint4{found.x ^ pad.x, found.y ^ pad.y, found.z ^ pad.z, found.w ^ pad.w};
  }
  if (thread >= nbytes % 16) return;
  ((u8 *)(at + vectors))[thread] ^= (u8)element_of<1>(pad_of(range, vectors, key), (int)thread);
}

// Add to two sums what ranges hold.
extern "C" __global__ void swarm_sum(Ranges ranges, u64 key, u64 *sums) {
  const u32 range = blockIdx.y;
  const u64 nbytes = ranges.sizes[range], vectors = (nbytes + 15) / 16;
  const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, threads = (u64)gridDim.x * blockDim.x;
  const uint4 *from = (const uint4 *)ranges.addresses[range];
  u64 one = 0, other = 0;
  for (u64 vector = thread; vector < vectors; vector += threads) {
    const u64 rest = nbytes - vector * 16;
    const uint4 found = rest < 16 ? blended(from[vector], uint4{0, 0, 0, 0}, (int)rest) : from[vector];
    digest(found, vector | (u64)range << 56, key, one, other);
  }
  for (int lane = 16; lane; lane /= 2) {
    one += __shfl_xor_sync(~0u, one, lane);
    other += __shfl_xor_sync(~0u, other, lane);
  }
  if (threadIdx.x % 32 == 0) atomicAdd(sums, one), atomicAdd(sums + 1, other);
}
