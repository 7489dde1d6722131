// What replay_shim.cpp knows of CUDA's driver interface; a test compares it with cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>

typedef int Result;
typedef void *Handle;  // of a module, a library, a function, a kernel, a stream
typedef unsigned long long Address;

struct Attribute {
  int id, padding;
  unsigned char value[64];
};

struct Config {
  unsigned grid[3], block[3], smem;
  Handle stream;
  const Attribute *attributes;
  unsigned count;
};

constexpr Result INVALID_VALUE = 1;
constexpr int POINTER_MEMORY_TYPE = 2, POINTER_RANGE_START = 11, POINTER_RANGE_SIZE = 12;
constexpr unsigned MEMORY_DEVICE = 2;
constexpr uint32_t FATBIN_WRAPPER = 0x466243b1, FATBIN = 0xba55ed50, ELF = 0x464c457f;
