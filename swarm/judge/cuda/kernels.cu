// The judge's kernels. Each takes a table of buffers, so a request costs one launch whatever it holds; a
// block finds its buffer by its tile's number. What is written and what counts as a match is in the headers.
#include "compare.h"
#include "contents.h"

constexpr int THREADS = 256, VECTORS = 4, TILE = THREADS * VECTORS;  // vectors of 16 bytes
constexpr u64 GUARD_BYTES = 4096, GUARD = GUARD_BYTES / 16;
enum Mode { VERIFY, SNAPSHOT, LIGHT, DIGEST };

struct Finding {      // what inspecting one buffer found; 0 is nothing
  u64 before;         // the last byte written before the buffer, counted from its guard's start, plus one
  u64 inside;         // the complement of the first byte of an input that is not what was put there
  u64 after;          // the complement of the first byte written past the end
  u64 strange;        // whether an output holds anything that is not finite
  u64 one, other;     // a digest of the bytes
};

// Return which buffer a tile belongs to: the last whose first tile is not beyond it.
__device__ u32 owner_of(const u32 *firsts, u32 count, u32 tile) {
  u32 low = 0, high = count;
  while (high - low > 1) {
    const u32 middle = (low + high) / 2;
    if (firsts[middle] <= tile) low = middle;
    else high = middle;
  }
  return low;
}

// A region in vectors: the guard before, the buffer, and the guard after, which may begin in mid-vector.
__device__ u64 vectors_of(const Region &region) { return 2 * GUARD + (region.nbytes + 15) / 16; }

__device__ uint4 *start_of(const Region &region) { return (uint4 *)(region.address - GUARD_BYTES); }

// How many bytes of a vector are the buffer's.
__device__ int bytes_in(const Region &region, u64 vector) {
  if (vector < GUARD || (vector - GUARD) * 16 >= region.nbytes) return 0;
  const u64 rest = region.nbytes - (vector - GUARD) * 16;
  return rest < 16 ? (int)rest : 16;
}

__device__ uint4 guard_of(const Region &region, u64 vector, u64 canary) {
  return philox(region.address / 16 - GUARD + vector, canary);
}

constexpr int ANY = -1;  // instead of a type: of all types and kinds that are not the usual ones

template <int T>
__device__ __forceinline__ uint4 wanted(const Region &region, const Usual &usual, u64 vector, u64 canary) {
  const int own = bytes_in(region, vector);
  if (own == 0) return guard_of(region, vector, canary);
  uint4 value;
  if constexpr (T == ANY) value = any_contents(region, vector - GUARD);
  else value = usual_contents<T>(usual, vector - GUARD);
  return own == 16 ? value : blended(value, guard_of(region, vector, canary), own);
}

template <int T>
__device__ __forceinline__ void fill_tile(const Region &region, u64 first, u64 canary) {
  const u64 vectors = vectors_of(region);
  const Usual usual = usual_of(region);
  uint4 *to = start_of(region);
#pragma unroll 1
  for (int i = 0; i < VECTORS; i++) {
    const u64 vector = first + i * THREADS;
    if (vector < vectors) to[vector] = wanted<T>(region, usual, vector, canary);
  }
}

// Note where the bytes of a vector, from `skip` on, differ from what should be there.
__device__ __noinline__ void note(Finding *finding, const Region &region, u64 vector, const uint4 &found,
                                  const uint4 &should, int skip) {
  for (int byte = skip; byte < 16; byte++) {
    if (element_of<1>(found, byte) == element_of<1>(should, byte)) continue;
    const u64 at = vector * 16 + byte;
    if (at < GUARD_BYTES) atomicMax(&finding->before, at + 1);
    else if (at - GUARD_BYTES < region.nbytes) atomicMax(&finding->inside, ~(at - GUARD_BYTES));
    else atomicMax(&finding->after, ~(at - GUARD_BYTES - region.nbytes));
  }
}

__device__ bool differ(const uint4 &a, const uint4 &b) {
  return ((a.x ^ b.x) | (a.y ^ b.y) | (a.z ^ b.z) | (a.w ^ b.w)) != 0;
}

template <int T>
__device__ __forceinline__ void verify_tile(const Region &region, u64 first, u64 canary, Finding *finding) {
  const u64 vectors = vectors_of(region);
  const Usual usual = usual_of(region);
  const uint4 *from = start_of(region);
#pragma unroll 1
  for (int i = 0; i < VECTORS; i++) {
    const u64 vector = first + i * THREADS;
    if (vector >= vectors) break;
    const uint4 found = from[vector], should = wanted<T>(region, usual, vector, canary);
    if (differ(found, should)) note(finding, region, vector, found, should, 0);
  }
}

__device__ __forceinline__ void look_at_tile(const Region &region, u64 first, u64 canary, Finding *finding) {
  const u64 vectors = vectors_of(region);
  const uint4 *from = start_of(region);
  u64 one = 0, other = 0;
  bool strange = false;
  uint4 loaded[VECTORS];
#pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    const u64 vector = first + i * THREADS;
    if (vector < vectors) loaded[i] = from[vector];
  }
#pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    const u64 vector = first + i * THREADS;
    if (vector >= vectors) break;
    const uint4 found = loaded[i];
    const int own = bytes_in(region, vector);
    if (own < 16) {
      const uint4 should = blended(found, guard_of(region, vector, canary), own);
      if (differ(found, should)) note(finding, region, vector, found, should, own);
    }
    if (own == 0) continue;
    if (region.mode == SNAPSHOT) ((uint4 *)region.source)[vector - GUARD] = found;
    else if (region.mode == DIGEST) digest(blended(found, joined(0, 0), own), vector, region.key, one, other);
    else strange |= any_strange(region.type, found, own);
  }
  if (region.mode == DIGEST) {
    for (int lane = 16; lane; lane /= 2) {
      one += __shfl_xor_sync(~0u, one, lane);
      other += __shfl_xor_sync(~0u, other, lane);
    }
    if (threadIdx.x % 32 == 0) atomicAdd(&finding->one, one), atomicAdd(&finding->other, other);
  }
  if (strange) finding->strange = 1;
}

// Have the block's threads see the region and the first vector of theirs of a tile.
__device__ u64 enter(Region &region, const Region *regions, u32 which, const u32 *firsts, u32 tile) {
  constexpr u32 words = sizeof(Region) / sizeof(u64);
  __syncthreads();
  if (threadIdx.x < words) ((u64 *)&region)[threadIdx.x] = ((const u64 *)(regions + which))[threadIdx.x];
  __syncthreads();
  return (u64)(tile - firsts[which]) * TILE + threadIdx.x;
}

// Write guards and contents of all regions.
extern "C" __global__ void __launch_bounds__(THREADS) swarm_fill(const Region *regions, const u32 *firsts,
                                                                 u32 count, u32 tiles, u64 canary) {
  __shared__ Region region;
  for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 first = enter(region, regions, owner_of(firsts, count, tile), firsts, tile);
    switch (is_usual(region) ? (int)region.type : ANY) {
      case F32: fill_tile<F32>(region, first, canary); break;
      case F16: fill_tile<F16>(region, first, canary); break;
      case BF16: fill_tile<BF16>(region, first, canary); break;
      default: fill_tile<ANY>(region, first, canary);
    }
  }
}

// Check the guards of all regions, and do with each buffer what its mode says.
extern "C" __global__ void __launch_bounds__(THREADS)
    swarm_inspect(const Region *regions, const u32 *firsts, u32 count, u32 tiles, u64 canary,
                  Finding *findings) {
  __shared__ Region region;
  for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u32 which = owner_of(firsts, count, tile);
    const u64 first = enter(region, regions, which, firsts, tile);
    Finding *finding = findings + which;
    if (region.mode != VERIFY) {
      look_at_tile(region, first, canary, finding);
      continue;
    }
    switch (is_usual(region) ? (int)region.type : ANY) {
      case F32: verify_tile<F32>(region, first, canary, finding); break;
      case F16: verify_tile<F16>(region, first, canary, finding); break;
      case BF16: verify_tile<BF16>(region, first, canary, finding); break;
      default: verify_tile<ANY>(region, first, canary, finding);
    }
  }
}

// Come back as soon as the GPU has a turn for us.
extern "C" __global__ void swarm_nothing() {}

constexpr int FIELDS = sizeof(Stats) / sizeof(u64);
enum Field { BAD, WORST, MAX_ABS, MAX_REL, NAN_AT, STRANGE_AT, POISONED, POISONED_AT, INVALID_AT, ANY_BITS };

__device__ u64 combined(int field, u64 a, u64 b) {
  if (field == BAD || field == POISONED) return a + b;
  return field == ANY_BITS ? a | b : larger(a, b);
}

// Add what the threads of a block found to what the other blocks did.
__device__ __noinline__ void merge_fields(const u64 *own, u64 *stats) {
  __shared__ u64 by_warp[THREADS / 32][FIELDS];
#pragma unroll 1
  for (int field = 0; field < FIELDS; field++) {
    u64 value = own[field];
#pragma unroll 1
    for (int lane = 16; lane; lane /= 2)
      value = combined(field, value, __shfl_xor_sync(~0u, value, lane));
    if (threadIdx.x % 32 == 0) by_warp[threadIdx.x / 32][field] = value;
  }
  __syncthreads();
  const int field = threadIdx.x;
  if (field < FIELDS) {
    u64 all = 0;
#pragma unroll 1
    for (int warp = 0; warp < THREADS / 32; warp++) all = combined(field, all, by_warp[warp][field]);
    if (all == 0) {
    } else if (field == BAD || field == POISONED) {
      atomicAdd(stats + field, all);
    } else if (field == ANY_BITS) {
      atomicOr(stats + field, all);
    } else {
      atomicMax(stats + field, all);
    }
  }
  __syncthreads();
}

template <typename F>
__device__ __forceinline__ void merge(const Tally<F> &tally, u64 *stats) {
  const double max_abs = tally.max_abs < (F)0 ? 0.0 : (double)tally.max_abs;
  const u64 fields[FIELDS] = {tally.bad,
                              worst_of(tally),
                              bits_of(max_abs),
                              bits_of((double)tally.max_rel),
                              tally.nan,
                              tally.strange,
                              tally.poisoned,
                              tally.first_poisoned,
                              tally.invalid,
                              (u64)(tally.got_any | tally.expected_any << 1)};
  merge_fields(fields, stats);
}

// Look at elements one by one.
template <typename F>
__device__ __noinline__ void examine_all(const Pair *at, u64 first, u64 last, u64 *stats) {
  const Pair pair = *at;
  Tally<F> tally = empty_tally<F>();
#pragma unroll 1
  for (u64 place = first + threadIdx.x; place < last; place += THREADS) examine(tally, pair, place);
  merge(tally, stats);
}

__device__ float largest_in_warp(float value) {
#pragma unroll
  for (int lane = 16; lane; lane /= 2) value = larger(value, __shfl_xor_sync(~0u, value, lane));
  return value;
}

// Compare vectors of a type compared in float32. The bounds are the warp's, so that few vectors are unusual.
template <int T>
__device__ __forceinline__ void compare_tiles(const Pair *at, u64 first, u64 last, u64 *stats) {
  constexpr u64 count = Traits<T>::count, logical = Traits<T>::is_packed ? 2 * count : count;
  const Pair pair = *at;
  const u64 whole = pair.count / count, stop = last < whole ? last : whole;
  const uint4 *from = (const uint4 *)pair.got, *expected = (const uint4 *)pair.expected;
  Bounds bounds = bounds_of(pair);
  Tally<float> tally = empty_tally<float>();
  u32 bad = 0, got_bits = 0, expected_bits = 0;
#pragma unroll 1
  for (u64 base = first; base < stop; base += THREADS) {
    const u64 vector = base + threadIdx.x;
    bool is_usual = vector >= stop;
    if (!is_usual)
      is_usual = count_usual<T>(bounds, from[vector], expected + vector * (logical / 4), bad, got_bits,
                                expected_bits);
    if (!__any_sync(~0u, !is_usual)) continue;
    if (!is_usual) {
#pragma unroll 1
      for (u64 i = 0; i < logical; i++) examine(tally, pair, vector * logical + i);
    }
    bounds.max_abs = largest_in_warp(larger(bounds.max_abs, tally.max_abs));
    bounds.max_rel = largest_in_warp(larger(bounds.max_rel, tally.max_rel));
  }
  tally.bad += bad;
  tally.got_any |= (got_bits & 0x7fffffffu) != 0, tally.expected_any |= (expected_bits & 0x7fffffffu) != 0;
  merge(tally, stats);
  if (last > whole) examine_all<float>(at, whole * logical, pair.count * (logical / count), stats);
}

// Compare the vectors of any other type.
__device__ void compare_others(const Pair *at, u64 first, u64 last, u64 *stats) {
  const u64 count = 16 / bytes_of(at->type), stop = last * count < at->count ? last * count : at->count;
  examine_all<double>(at, first * count, stop, stats);
}

// Compare all pairs; a block takes tiles in a row, so that it seldom has to merge what it found.
extern "C" __global__ void __launch_bounds__(THREADS)
    swarm_compare(const Pair *pairs, const u32 *firsts, u32 count, u32 tiles, Stats *stats) {
  const u32 end = (u32)((u64)tiles * (blockIdx.x + 1) / gridDim.x);
  u32 tile = (u32)((u64)tiles * blockIdx.x / gridDim.x);
  while (tile < end) {
    const u32 which = owner_of(firsts, count, tile);
    const u32 next = which + 1 < count ? firsts[which + 1] : tiles, stop = next < end ? next : end;
    const Pair *at = pairs + which;
    const u64 first = (u64)(tile - firsts[which]) * TILE, last = (u64)(stop - firsts[which]) * TILE;
    u64 *fields = (u64 *)(stats + which);
    switch (at->type) {
      case F32: compare_tiles<F32>(at, first, last, fields); break;
      case F16: compare_tiles<F16>(at, first, last, fields); break;
      case BF16: compare_tiles<BF16>(at, first, last, fields); break;
      case E4M3: compare_tiles<E4M3>(at, first, last, fields); break;
      case E5M2: compare_tiles<E5M2>(at, first, last, fields); break;
      case E2M1: compare_tiles<E2M1>(at, first, last, fields); break;
      default: compare_others(at, first, last, fields);
    }
    tile = stop;
  }
}
