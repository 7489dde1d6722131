// What launching a plan takes, by CUDA's runtime.
#pragma once
#include "swarm_numbers.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace swarm {

inline void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

inline void check(CUresult result) {
  if (result != CUDA_SUCCESS) throw std::runtime_error("CUDA driver error " + std::to_string(int(result)));
}

struct Device {
  int number = 0;
  int64_t num_sms = 0, smem_per_block_max = 0, l2_bytes = 0, arch = 0;
};

// The current device.
inline const Device& device() {
  static std::map<int, Device> known;
  int number = 0;
  check(cudaGetDevice(&number));
  Device& found = known[number];
  if (found.num_sms == 0) {
    const auto attribute = [&](cudaDeviceAttr name) {
      int value = 0;
      check(cudaDeviceGetAttribute(&value, name, number));
      return int64_t(value);
    };
    found.number = number;
    found.smem_per_block_max = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    found.l2_bytes = attribute(cudaDevAttrL2CacheSize);
    found.arch = 10 * attribute(cudaDevAttrComputeCapabilityMajor);
    found.arch += attribute(cudaDevAttrComputeCapabilityMinor);
    found.num_sms = attribute(cudaDevAttrMultiProcessorCount);
  }
  return found;
}

inline int64_t rounded(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Memory that all launches of one call share; it grows and stays.
inline char* scratch(int64_t bytes) {
  static std::map<int, std::pair<char*, int64_t>> kept;
  auto& [memory, size] = kept[device().number];
  if (bytes > size) {
    if (memory != nullptr) check(cudaFree(memory));
    memory = nullptr;
    size = 0;
    void* fresh = nullptr;
    check(cudaMalloc(&fresh, bytes));
    memory = static_cast<char*>(fresh);
    size = bytes;
  }
  return memory;
}

// Sets elements of `width` bytes to one pattern.
inline void set(void* memory, unsigned value, int width, int64_t bytes, cudaStream_t stream) {
  if (bytes == 0) return;
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  if (width == 1) check(cudaMemsetAsync(memory, int(value), bytes, stream));
  if (width == 2) check(cuMemsetD16Async(address, static_cast<unsigned short>(value), bytes / 2, stream));
  if (width == 4) check(cuMemsetD32Async(address, value, bytes / 4, stream));
}

// Sets `bytes` from `offset` on, or all that follow if it is negative; says whether there were any.
inline bool set_part(void* memory, int64_t size, int64_t offset, int64_t bytes, int value, cudaStream_t stream) {
  at_least(0, offset);
  if (bytes < 0) bytes = size - offset;
  if (bytes < 0 || offset + bytes > size) throw std::runtime_error("a memset leaves its memory");
  if (bytes > 0) check(cudaMemsetAsync(static_cast<char*>(memory) + offset, value, bytes, stream));
  return bytes > 0;
}

inline dim3 dim(int64_t x, int64_t y = 1, int64_t z = 1) {
  return dim3(narrow<unsigned>(x), narrow<unsigned>(y), narrow<unsigned>(z));
}

inline int64_t volume(dim3 size) { return int64_t(size.x) * size.y * size.z; }

// Lets a kernel have more shared memory than it gets unasked.
inline void allow_smem(const void* kernel, int64_t smem) {
  if (smem > 48 * 1024)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(smem)));
}

inline void allow_cluster(const void* kernel, dim3 cluster) {
  if (volume(cluster) > 8) check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
}

inline int64_t max_active_blocks(const void* kernel, dim3 block, int64_t smem) {
  int blocks = 0;
  allow_smem(kernel, smem);
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, int(volume(block)), smem));
  return blocks;
}

struct Launch {
  dim3 grid, block, cluster = dim3(0, 0, 0);
  int64_t smem = 0;
  bool cooperative = false;
  bool overlaps = false;  // with the launch before it

  cudaLaunchConfig_t config(cudaLaunchAttribute* attributes, cudaStream_t stream) const {
    cudaLaunchConfig_t made = {};
    made.gridDim = grid;
    made.blockDim = block;
    made.dynamicSmemBytes = smem;
    made.stream = stream;
    made.attrs = attributes;
    if (cluster.x > 0) {
      attributes[made.numAttrs].id = cudaLaunchAttributeClusterDimension;
      attributes[made.numAttrs].val.clusterDim.x = cluster.x;
      attributes[made.numAttrs].val.clusterDim.y = cluster.y;
      attributes[made.numAttrs++].val.clusterDim.z = cluster.z;
    }
    if (cooperative) {
      attributes[made.numAttrs].id = cudaLaunchAttributeCooperative;
      attributes[made.numAttrs++].val.cooperative = 1;
    }
    if (overlaps) {
      attributes[made.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[made.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    return made;
  }

  void go(const void* kernel, void** arguments, cudaStream_t stream) const {
    cudaLaunchAttribute attributes[3];
    allow_smem(kernel, smem);
    if (cluster.x > 0) allow_cluster(kernel, cluster);
    const cudaLaunchConfig_t made = config(attributes, stream);
    check(cudaLaunchKernelExC(&made, kernel, arguments));
  }
};

inline int64_t max_active_clusters(const void* kernel, dim3 block, int64_t smem, dim3 cluster) {
  int clusters = 0;
  cudaLaunchAttribute attributes[3];
  Launch launch;
  launch.grid = dim3(cluster.x * unsigned(device().num_sms), cluster.y, cluster.z);
  launch.block = dim(volume(block));
  launch.cluster = cluster;
  launch.smem = smem;
  allow_smem(kernel, smem);
  allow_cluster(kernel, cluster);
  const cudaLaunchConfig_t made = launch.config(attributes, nullptr);
  check(cudaOccupancyMaxActiveClusters(&clusters, kernel, &made));
  return clusters;
}

// A tensor map for TMA.
struct Map {
  CUtensorMapDataType type;
  int64_t width;
  std::vector<int64_t> dims, strides, box, element_strides;
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion promotion;
  CUtensorMapFloatOOBfill fill;

  CUtensorMap at(const void* memory, int64_t offset) const {
    const size_t rank = dims.size();
    std::vector<cuuint64_t> sizes(dims.begin(), dims.end()), steps(strides.begin(), strides.end());
    std::vector<cuuint32_t> lengths(box.begin(), box.end()), skips(element_strides.begin(), element_strides.end());
    cuuint64_t dense = width;
    for (size_t n = 0; strides.empty() && n + 1 < rank; ++n) steps.push_back(dense *= sizes[n]);
    if (skips.empty()) skips.assign(rank, 1);
    const char* address = static_cast<const char*>(memory) + at_least(0, offset);
    CUtensorMap map;
    check(cuTensorMapEncodeTiled(&map, type, cuuint32_t(rank), const_cast<char*>(address), sizes.data(),
                                 steps.data(), lengths.data(), skips.data(), interleave, swizzle, promotion, fill));
    return map;
  }
};

}  // namespace swarm
