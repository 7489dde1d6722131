// kernels.cu on the CPU: what a driver would launch, by name and parameter block.
#include "emulator.h"

#include "kernels.cu"

struct Table {
  const void *rows;
  const u32 *firsts;
  u32 count, tiles;
  u64 last[2];
};

extern "C" int launch(const char *name, unsigned grid, const Table *given) {
  const Table table = *given;
  const Region *regions = (const Region *)table.rows;
  if (!strcmp(name, "swarm_fill")) {
    emulator::run(grid, THREADS,
                  [=] { swarm_fill(regions, table.firsts, table.count, table.tiles, table.last[0]); });
  } else if (!strcmp(name, "swarm_inspect")) {
    emulator::run(grid, THREADS, [=] {
      swarm_inspect(regions, table.firsts, table.count, table.tiles, table.last[0], (Finding *)table.last[1]);
    });
  } else if (!strcmp(name, "swarm_compare")) {
    emulator::run(grid, THREADS, [=] {
      swarm_compare((const Pair *)table.rows, table.firsts, table.count, table.tiles, (Stats *)table.last[0]);
    });
  } else {
    return 1;
  }
  return 0;
}

// Encode floats, or decode codes: for comparison with torch's conversions.
extern "C" void encode_all(u32 type, const float *values, u32 *codes, u64 count) {
  for (u64 i = 0; i < count; i++) codes[i] = encoded(type, values[i]);
}

extern "C" void decode_all(u32 type, const u32 *codes, float *values, u64 count) {
  for (u64 i = 0; i < count; i++) values[i] = float_in(type, codes[i]);
}
