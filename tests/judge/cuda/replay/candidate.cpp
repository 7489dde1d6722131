// Host code as candidates write it, for the fake driver: each entry works on x and y, both of n floats.
#include <cuda.h>
#undef cuGetProcAddress

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

using LaunchEx = CUresult (*)(const CUlaunchConfig *, CUfunction, void **, void **);

std::vector<char> code;
CUstream stream = nullptr;
int calls = 0;

CUfunction function(const char *name) {
  static std::map<std::string, CUfunction> found;
  if (!found.count(name)) {
    CUmodule module;
    cuModuleLoadData(&module, code.data());
    cuModuleGetFunction(&found[name], module, name);
  }
  return found[name];
}

CUlaunchConfig config(unsigned blocks, std::vector<CUlaunchAttribute> &attributes) {
  CUlaunchConfig made = {};
  made.gridDimX = blocks, made.gridDimY = made.gridDimZ = 1;
  made.blockDimX = 128, made.blockDimY = made.blockDimZ = 1;
  made.sharedMemBytes = 49152;
  made.hStream = stream;
  made.attrs = attributes.data();
  made.numAttrs = unsigned(attributes.size());
  return made;
}

void scale(const float *x, float *y, int n, float factor, unsigned blocks = 4, CUstream on = stream) {
  void *each[] = {&x, &y, &n, &factor};
  cuLaunchKernel(function("scale"), blocks, 1, 1, 128, 1, 1, 0, on, each, nullptr);
}

void scale_by(LaunchEx launch, CUfunction kernel, float *x, float *y, int n) {
  CUlaunchAttribute cluster = {}, overlap = {};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {2, 1, 1};
  overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  overlap.value.programmaticStreamSerializationAllowed = 1;
  std::vector<CUlaunchAttribute> attributes{cluster, overlap};
  const CUlaunchConfig made = config(8, attributes);
  float factor = 3;
  void *each[] = {&x, &y, &n, &factor};
  launch(&made, kernel, each, nullptr);
}

float *scratch(size_t count) {
  CUdeviceptr made;
  cuMemAlloc_v2(&made, 4 * count);
  return reinterpret_cast<float *>(made);
}

CUdeviceptr at(const void *address) { return reinterpret_cast<CUdeviceptr>(address); }

}  // namespace

extern "C" {

void set_code(const char *bytes, size_t size) { code.assign(bytes, bytes + size); }

// y = 6 x, by way of memory of its own that is elsewhere in every call.
void through_scratch(float *x, float *y, int n) {
  float *mine = scratch(2 * n);
  cuMemsetD32Async(at(mine), 0x40000000, n, stream);
  cuMemcpyDtoDAsync_v2(at(mine + n), at(x), 4 * n, stream);
  scale(mine + n, mine, n, 2);
  scale(mine, y, n, 3);
}

void by_dlsym(float *x, float *y, int n) {
  void *library = dlopen("libcuda.so.1", RTLD_LAZY);
  scale_by(reinterpret_cast<LaunchEx>(dlsym(library, "cuLaunchKernelEx")), function("scale"), x, y, n);
}

// As the runtime does it: a library of kernels, all of the driver by way of one function.
void by_table_with(float *x, float *y, int n, bool is_function) {
  using Get = CUresult (*)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
  const auto get = reinterpret_cast<Get>(dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuGetProcAddress_v2"));
  const auto ask = [get](const char *name) {
    void *found = nullptr;
    get(name, &found, 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, nullptr);
    return found;
  };
  static CUkernel kernel = [&] {
    const void *wrapper[] = {reinterpret_cast<void *>(0x1466243b1), code.data(), nullptr};
    CUlibrary library;
    CUkernel made;
    reinterpret_cast<decltype(&cuLibraryLoadData)>(ask("cuLibraryLoadData"))(&library, wrapper, nullptr, nullptr, 0,
                                                                             nullptr, nullptr, 0);
    reinterpret_cast<decltype(&cuLibraryGetKernel)>(ask("cuLibraryGetKernel"))(&made, library, "scale");
    return made;
  }();
  CUfunction function = reinterpret_cast<CUfunction>(kernel);  // a launch takes either
  if (is_function) reinterpret_cast<decltype(&cuKernelGetFunction)>(ask("cuKernelGetFunction"))(&function, kernel);
  scale_by(reinterpret_cast<LaunchEx>(ask("cuLaunchKernelEx")), function, x, y, n);
}

void by_table(float *x, float *y, int n) { by_table_with(x, y, n, true); }

void by_a_kernel(float *x, float *y, int n) { by_table_with(x, y, n, false); }

// An address within a structure, and the parameters in one buffer.
void in_a_struct(float *x, float *y, int n) {
  struct {
    long long n;
    const float *from;
    float by;
    int unused;
    float *y;
  } block = {n, x, 5, 0, y};
  size_t size = sizeof block;
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  cuLaunchKernel(function("move"), 1, 1, 1, 128, 1, 1, 0, stream, nullptr, extra);
}

void by_a_map(float *x, float *y, int n) {
  alignas(64) CUtensorMap map;
  cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 1, x, nullptr, nullptr, nullptr, nullptr,
                         CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  float *end = y + n;
  void *each[] = {&map, &y, &end};
  cuLaunchKernel(function("mapped"), 1, 1, 1, 128, 1, 1, 0, stream, each, nullptr);
}

void on_a_stream_of_its_own(float *x, float *y, int n) { scale(x, y, n, 2, 4, reinterpret_cast<CUstream>(0x7000)); }

// Things that cannot be replayed.

void counts_its_calls(float *x, float *y, int n) { scale(x, y, n, float(++calls)); }

void grows(float *x, float *y, int n) { scale(x, y, n, 2, unsigned(++calls)); }

void works_now_and_then(float *x, float *y, int n) {
  scale(x, y, n, 2);
  if (++calls % 2) scale(x, y, n, 2);
}

void takes_turns(float *x, float *y, int n) {
  if (++calls % 2) scale(x, y, n, 2);
  else in_a_struct(x, y, n);
}

void hides_an_address(float *x, float *y, int n) {
  struct {
    long long shifted;
    const float *from;
    float by;
    int unused;
  } given = {reinterpret_cast<long long>(x) >> 4, x, 5, 0};
  given.shifted = given.shifted << 32 >> 32;
  void *each[] = {&given, &y};
  if (given.shifted > n) given.shifted = -given.shifted;  // the kernel does nothing then
  cuLaunchKernel(function("move"), 1, 1, 1, 128, 1, 1, 0, stream, each, nullptr);
}

void on_two_streams(float *x, float *y, int n) {
  scale(x, y, n / 2, 2);
  scale(x + n / 2, y + n / 2, n - n / 2, 2, 4, reinterpret_cast<CUstream>(0x7000));
}

void launches_a_graph(float *x, float *y, int n) {
  scale(x, y, n, 2);
  cuGraphLaunch(nullptr, stream);
}

void uploads(float *x, float *y, int n) {
  static const float zero = 0;
  scale(x, y, n, 2);
  cuMemcpyHtoDAsync_v2(at(y), &zero, 4, stream);
}

void reads_a_neighbour(float *x, float *y, int n) { scale(x - 256, y, n, 2); }

void does_nothing(float *, float *, int) {}

// What an earlier call left behind: a table that this call does not fill.
void keeps_a_table(float *x, float *y, int n) {
  static float *table = nullptr;
  if (!table) scale(x, table = scratch(n), n, 2);
  scale(table, y, n, 1);
}
}
