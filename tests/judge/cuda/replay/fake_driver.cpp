// A CUDA driver without a GPU: its memory is the host's, and it has three kernels, known by their names.
// Built as libcuda.so.1, for the shim to stand before.
#include <cuda.h>
#undef cuGetProcAddress

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

using Layout = std::vector<std::pair<size_t, size_t>>;

struct Moved {
  long long n;
  const float *from;
  float by;
};

void scale(const char *block) {
  const auto *x = *(const float *const *)block;
  auto *y = *(float *const *)(block + 8);
  const int n = *(const int *)(block + 16);
  const float factor = *(const float *)(block + 20);
  for (int i = 0; i < n; i++) y[i] = x[i] * factor;
}

void move(const char *block) {
  const Moved given = *(const Moved *)block;
  auto *y = *(float *const *)(block + 24);
  for (int i = 0; i < given.n; i++) y[i] = given.from[i] + given.by;
}

// Reads up to an end, through a map whose first word is the address.
void mapped(const char *block) {
  const auto *x = *(const float *const *)block;
  auto *y = *(float *const *)(block + 128);
  auto *end = *(float *const *)(block + 136);
  for (; y < end; x++, y++) *y = *x + 1;
}

struct Kernel {
  Layout layout;
  void (*run)(const char *);
};

const std::map<std::string, Kernel> kernels = {
    {"scale", {{{0, 8}, {8, 8}, {16, 4}, {20, 4}}, scale}},
    {"move", {{{0, 24}, {24, 8}}, move}},
    {"mapped", {{{0, 128}, {128, 8}, {136, 8}}, mapped}},
};
std::map<CUdeviceptr, size_t> memory;

const Kernel &kernel_of(const void *handle) { return kernels.at(*static_cast<const std::string *>(handle)); }

CUresult launch(CUfunction function, void **each, void **extra) {
  const Kernel &kernel = kernel_of(function);
  alignas(64) char block[256] = {};
  if (each)
    for (size_t i = 0; i < kernel.layout.size(); i++)
      memcpy(block + kernel.layout[i].first, each[i], kernel.layout[i].second);
  else
    memcpy(block, extra[1], *static_cast<size_t *>(extra[3]));
  kernel.run(block);
  return CUDA_SUCCESS;
}

template <class T> CUresult fill(CUdeviceptr to, T value, size_t count) {
  for (size_t i = 0; i < count; i++) reinterpret_cast<T *>(to)[i] = value;
  return CUDA_SUCCESS;
}

template <class Handle> CUresult named(Handle *handle, const char *name) {
  if (!kernels.count(name)) return CUDA_ERROR_NOT_FOUND;
  *handle = reinterpret_cast<Handle>(new std::string(name));
  return CUDA_SUCCESS;
}

CUresult layout(const void *handle, size_t number, size_t *offset, size_t *size) {
  const Layout &found = kernel_of(handle).layout;
  if (number >= found.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = found[number].first;
  if (size) *size = found[number].second;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
  *address = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(512, (size + 511) / 512 * 512));
  memory[*address] = size;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute name, CUdeviceptr address) {
  auto found = memory.upper_bound(address);
  if (found == memory.begin()) return CUDA_ERROR_INVALID_VALUE;
  --found;
  if (address > found->first + found->second) return CUDA_ERROR_INVALID_VALUE;
  if (name == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) *static_cast<unsigned *>(value) = CU_MEMORYTYPE_DEVICE;
  else if (name == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) *static_cast<CUdeviceptr *>(value) = found->first;
  else if (name == CU_POINTER_ATTRIBUTE_RANGE_SIZE) *static_cast<size_t *>(value) = found->second;
  else return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *) {
  *module = reinterpret_cast<CUmodule>(new int);
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule, const char *name) { return named(function, name); }
CUresult cuLibraryLoadData(CUlibrary *library, const void *, CUjit_option *, void **, unsigned, CUlibraryOption *,
                           void **, unsigned) {
  *library = reinterpret_cast<CUlibrary>(new int);
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary, const char *name) { return named(kernel, name); }
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
  return named(function, reinterpret_cast<std::string *>(kernel)->c_str());
}
CUresult cuFuncGetParamInfo(CUfunction function, size_t number, size_t *offset, size_t *size) {
  return layout(function, number, offset, size);
}
CUresult cuKernelGetParamInfo(CUkernel kernel, size_t number, size_t *offset, size_t *size) {
  return layout(kernel, number, offset, size);
}

CUresult cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        CUstream, void **each, void **extra) {
  return launch(function, each, extra);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *, CUfunction function, void **each, void **extra) {
  return launch(function, each, extra);
}
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *, CUfunction function, void **each, void **extra) {
  return launch(function, each, extra);
}
CUresult cuGraphLaunch(CUgraphExec, CUstream) { return CUDA_SUCCESS; }

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream) { return fill(to, value, count); }
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream) { return fill(to, value, count); }
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream) {
  memmove(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), size);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream) {
  memmove(reinterpret_cast<void *>(to), from, size);
  return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType, cuuint32_t, void *address, const cuuint64_t *,
                                const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  memset(map, 7, sizeof *map);
  return cuTensorMapReplaceAddress(map, address);
}
CUresult cuTensorMapReplaceAddress(CUtensorMap *map, void *address) {
  map->opaque[0] = reinterpret_cast<cuuint64_t>(address);
  return CUDA_SUCCESS;
}

// Gives functions at other addresses than dlsym does, as a driver may.
CUresult cuGetProcAddress_v2(const char *name, void **found, int, cuuint64_t flags, CUdriverProcAddressQueryResult *) {
  static CUresult (*const launch_ex)(const CUlaunchConfig *, CUfunction, void **, void **) =
      [](const CUlaunchConfig *, CUfunction function, void **each, void **extra) {
        return launch(function, each, extra);
      };
  if (!strcmp(name, "cuLaunchKernelEx")) return *found = reinterpret_cast<void *>(launch_ex), CUDA_SUCCESS;
  const std::string suffix = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? "_ptsz" : "";
  *found = dlsym(RTLD_DEFAULT, (name + suffix).c_str());
  if (!*found) *found = dlsym(RTLD_DEFAULT, (std::string(name) + "_v2" + suffix).c_str());
  return *found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// For a test's own bindings.
void run_kernel(const char *name, const char *block) { kernels.at(name).run(block); }
}
