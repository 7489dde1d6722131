// kernels.cu and veil.h on the CPU: what a driver would launch, by name and parameter block.
#include "emulator.h"

template <class T> T atomicMax(T *at, T value) {
  const T before = *at;
  if (value > before) *at = value;
  return before;
}

template <class T> T atomicOr(T *at, T value) {
  const T before = *at;
  *at |= value;
  return before;
}

inline int __any_sync(unsigned, int value) {
  int any = value != 0;
  for (int lane = 16; lane; lane /= 2) any |= __shfl_xor_sync(~0u, any, lane);
  return any;
}

#define __noinline__
#include "kernels.cu"
#include "veil.h"

struct Parameters {
  const void *rows;
  const u32 *firsts;
  u32 count, tiles;
  u64 more[2];
};

struct Veiling {
  Ranges ranges;
  u64 key;
  u64 *sums;
};

extern "C" int launch(const char *name, unsigned blocks, unsigned rows, const void *parameters) {
  const unsigned grid[] = {blocks, rows, 1}, block[] = {THREADS, 1, 1};
  const auto at = [](const void *field) { return (const unsigned char *)field; };
  const auto *given = (const Parameters *)parameters;
  const auto *veiling = (const Veiling *)parameters;
  const unsigned char *fields[] = {at(&given->rows),  at(&given->firsts),  at(&given->count),
                                   at(&given->tiles), at(&given->more[0]), at(&given->more[1])};
  const unsigned char *ranges[] = {at(&veiling->ranges), at(&veiling->key), at(&veiling->sums)};
  if (!strcmp(name, "swarm_fill")) emulator::launch(swarm_fill, grid, block, 0, fields);
  else if (!strcmp(name, "swarm_inspect")) emulator::launch(swarm_inspect, grid, block, 0, fields);
  else if (!strcmp(name, "swarm_compare")) emulator::launch(swarm_compare, grid, block, 0, fields);
  else if (!strcmp(name, "swarm_veil")) emulator::launch(swarm_veil, grid, block, 0, ranges);
  else if (!strcmp(name, "swarm_sum")) emulator::launch(swarm_sum, grid, block, 0, ranges);
  else return strcmp(name, "swarm_nothing");
  return 0;
}

// Encode floats, or decode codes: for comparison with torch's conversions.
extern "C" void encode_all(u32 type, const float *values, u32 *codes, u64 count) {
  for (u64 i = 0; i < count; i++) codes[i] = encoded(type, values[i]);
}

extern "C" void decode_all(u32 type, const u32 *codes, float *values, u64 count) {
  for (u64 i = 0; i < count; i++) values[i] = float_in(type, codes[i]);
}

// The random words of one counter.
extern "C" void random_words(u64 counter, u64 key, u32 *words) {
  const uint4 found = philox(counter, key);
  for (int i = 0; i < 4; i++) words[i] = word_of(found, i);
}
