// A CUDA runtime without a GPU: it writes down what it is asked to do. For tests of generated host code.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace {

std::string written;
std::map<const void*, int> argument_counts;
int maps = 0;

std::string number(long long value) { return std::to_string(value) + " "; }

std::string bytes(const void* data, int count) {
  std::string text;
  char two[3];
  for (int i = 0; i < count; ++i) {
    std::snprintf(two, sizeof two, "%02x", static_cast<const unsigned char*>(data)[i]);
    text += two;
  }
  return text + " ";
}

int blocks_per_multiprocessor(long long threads) {
  const long long blocks = 2048 / threads;
  return int(blocks < 1 ? 1 : blocks > 32 ? 32 : blocks);
}

}  // namespace

extern "C" {

void recorder_start() {
  written.clear();
  maps = 0;
}
const char* recorder_text() { return written.c_str(); }
void recorder_arguments(const void* kernel, int count) { argument_counts[kernel] = count; }

cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr name, int) {
  switch (name) {
    case cudaDevAttrMultiProcessorCount: *value = 132; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 232448; break;
    case cudaDevAttrL2CacheSize: *value = 60 << 20; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    default: return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute name, int value) {
  written += "attribute " + number(name) + number(value) + "\n";
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads, size_t) {
  return *blocks = blocks_per_multiprocessor(threads), cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* kernel, int threads,
                                                                   size_t smem, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, smem);
}

cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void*, const cudaLaunchConfig_t* config) {
  const auto& size = config->attrs[0].val.clusterDim;
  const long long threads = (long long)config->blockDim.x * config->blockDim.y * config->blockDim.z;
  *clusters = 132 * blocks_per_multiprocessor(threads) / int(size.x * size.y * size.z);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t size) {
  *memory = std::aligned_alloc(256, (size + 255) / 256 * 256);
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) { return std::free(memory), cudaSuccess; }

cudaError_t cudaMemsetAsync(void* memory, int value, size_t count, cudaStream_t) {
  written += "memset 1 " + number(value) + number(count) + number((long long)memory) + "\n";
  return cudaSuccess;
}

CUresult cuMemsetD16Async(CUdeviceptr memory, unsigned short value, size_t count, CUstream) {
  written += "memset 2 " + number(value) + number(2 * count) + number(memory) + "\n";
  return CUDA_SUCCESS;
}

CUresult cuMemsetD32Async(CUdeviceptr memory, unsigned value, size_t count, CUstream) {
  written += "memset 4 " + number(value) + number(4 * count) + number(memory) + "\n";
  return CUDA_SUCCESS;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t count, cudaMemcpyKind, cudaStream_t) {
  written += "copy " + number((long long)to) + number(count) + bytes(from, 4) + "\n";
  return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  std::string cluster = "0 0 0 ", cooperative = "0 ", overlaps = "0 ";
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const auto& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeClusterDimension)
      cluster = number(attribute.val.clusterDim.x) + number(attribute.val.clusterDim.y) +
                number(attribute.val.clusterDim.z);
    if (attribute.id == cudaLaunchAttributeCooperative) cooperative = number(attribute.val.cooperative);
    if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization)
      overlaps = number(attribute.val.programmaticStreamSerializationAllowed);
  }
  written += "launch " + std::string(static_cast<const char*>(kernel)) + " ";
  written += number(config->gridDim.x) + number(config->gridDim.y) + number(config->gridDim.z);
  written += number(config->blockDim.x) + number(config->blockDim.y) + number(config->blockDim.z);
  written += number(config->dynamicSmemBytes) + cluster + cooperative + overlaps;
  for (int i = 0; i < argument_counts[kernel]; ++i) written += bytes(arguments[i], 8);
  written += "\n";
  return cudaSuccess;
}

// A map is its number, from 1, in the first four bytes.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
  *map = {};
  map->opaque[0] = ++maps;
  written += "map " + number(type) + number((long long)address) + number(rank);
  for (unsigned i = 0; i < rank; ++i) written += number(dims[i]);
  for (unsigned i = 0; i + 1 < rank; ++i) written += number(strides[i]);
  for (unsigned i = 0; i < rank; ++i) written += number(box[i]);
  for (unsigned i = 0; i < rank; ++i) written += number(element_strides[i]);
  written += number(interleave) + number(swizzle) + number(promotion) + number(fill) + "\n";
  return CUDA_SUCCESS;
}

const char* cudaGetErrorString(cudaError_t) { return "an error"; }
}
