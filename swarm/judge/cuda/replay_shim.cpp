// Writes down what a program has the GPU do, so that the judge can have it done again without the program.
//
// Preloaded into a runner of its own (LD_PRELOAD): it stands before libcuda for those that link it, ask dlsym or
// ask cuGetProcAddress. Nobody need believe it, since what is written down is checked and timed by being replayed.
// The ABI is declared here, for it is stable, and not every GPU host has cuda.h; a test compares the two.
#include "replay_notes.h"

namespace {

// A driver function that we stand before.
struct Row {
  const char *name;
  void *ours, **real;
};

constexpr int PER_THREAD = 2;  // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, and CU_STREAM_PER_THREAD

bool is_ready = false;

std::vector<Row> &rows() {
  static std::vector<Row> all;
  return all;
}

const Row *row_of(const char *name) {
  for (const Row &row : rows())
    if (!strcmp(name, row.name)) return &row;
  return nullptr;
}

struct Registered {
  Registered(const char *name, void *ours, void **real) { rows().push_back({name, ours, real}); }
};

// Runs last of this file's constructors, before the program: children of this process need no shim.
void begin() {
  unsetenv("LD_PRELOAD");
  driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!driver) return;
  for (const Row &row : rows()) *row.real = real_dlsym()(driver, row.name);
  is_ready = true;
}

Handle stream_of(Handle given, bool is_per_thread) {
  return given || !is_per_thread ? given : reinterpret_cast<Handle>(PER_THREAD);
}

}  // namespace

// A function of the driver, and what is done once it succeeded.
#define WRAP(name, parameters, arguments, ...)                                                         \
  static Result(*real_##name) parameters;                                                              \
  EXPORT Result name parameters {                                                                      \
    const Result result = real_##name arguments;                                                       \
    if (result == 0) { __VA_ARGS__; }                                                                  \
    return result;                                                                                     \
  }                                                                                                    \
  static const Registered row_##name(#name, reinterpret_cast<void *>(name), reinterpret_cast<void **>(&real_##name));

// One that is only told of. All take words, and at most these many: more are read from the stack, and passed on.
#define W uintptr_t
#define MARK(name)                                                                                     \
  static Result (*real_##name)(W, W, W, W, W, W, W, W, W, W, W, W);                                    \
  EXPORT Result name(W a, W b, W c, W d, W e, W f, W g, W h, W i, W j, W k, W l) {                     \
    mark(#name);                                                                                       \
    return real_##name(a, b, c, d, e, f, g, h, i, j, k, l);                                            \
  }                                                                                                    \
  static const Registered row_##name(#name, reinterpret_cast<void *>(name), reinterpret_cast<void **>(&real_##name));

#define U unsigned
WRAP(cuModuleLoadData, (Handle * module, const void *image), (module, image), loaded(*module, image))
WRAP(cuModuleLoadDataEx, (Handle * module, const void *image, U count, int *options, void **values),
     (module, image, count, options, values), loaded(*module, image))
WRAP(cuModuleLoadFatBinary, (Handle * module, const void *image), (module, image), loaded(*module, image))
WRAP(cuLibraryLoadData,
     (Handle * library, const void *image, int *jit, void **jit_values, U jits, int *options, void **values, U count),
     (library, image, jit, jit_values, jits, options, values, count), loaded(*library, image))
WRAP(cuLibraryGetModule, (Handle * module, Handle library), (module, library), {
  const std::lock_guard<std::recursive_mutex> guard(lock);
  const auto found = image_of.find(library);
  if (found != image_of.end()) image_of[*module] = found->second;
})
WRAP(cuModuleGetFunction, (Handle * function, Handle module, const char *name), (function, module, name),
     named(*function, module, name, false))
WRAP(cuLibraryGetKernel, (Handle * kernel, Handle library, const char *name), (kernel, library, name),
     named(*kernel, library, name, true))
WRAP(cuLibraryEnumerateKernels, (Handle * kernels, U count, Handle library), (kernels, count, library), {
  static const auto name_of = of_driver<Result (*)(const char **, Handle)>("cuKernelGetName");
  const char *name;
  for (U i = 0; name_of && i < count; i++)
    if (name_of(&name, kernels[i]) == 0) named(kernels[i], library, name, true);
})
WRAP(cuKernelGetFunction, (Handle * function, Handle kernel), (function, kernel), {
  const std::lock_guard<std::recursive_mutex> guard(lock);
  const auto found = kernel_of.find(kernel);
  if (found != kernel_of.end()) kernel_of[*function] = {found->second.image, found->second.symbol, false};
})
WRAP(cuTensorMapEncodeTiled,
     (void *map, int type, U rank, void *address, const void *dims, const void *strides, const void *box,
      const void *element_strides, int interleave, int swizzle, int promotion, int fill),
     (map, type, rank, address, dims, strides, box, element_strides, interleave, swizzle, promotion, fill),
     encoded(map, reinterpret_cast<Address>(address)))
WRAP(cuTensorMapEncodeIm2col,
     (void *map, int type, U rank, void *address, const void *dims, const void *strides, const int *lower,
      const int *upper, U channels, U pixels, const void *element_strides, int interleave, int swizzle, int promotion,
      int fill),
     (map, type, rank, address, dims, strides, lower, upper, channels, pixels, element_strides, interleave, swizzle,
      promotion, fill),
     encoded(map, reinterpret_cast<Address>(address)))
WRAP(cuTensorMapReplaceAddress, (void *map, void *address), (map, address),
     encoded(map, reinterpret_cast<Address>(address)))

// What works on a stream, twice: with the legacy default stream and with one for each thread.
#define LAUNCHES(suffix, is_per_thread)                                                                \
  WRAP(cuLaunchKernel##suffix,                                                                         \
       (Handle kernel, U gx, U gy, U gz, U bx, U by, U bz, U smem, Handle stream, void **each, void **extra), \
       (kernel, gx, gy, gz, bx, by, bz, smem, stream, each, extra),                                    \
       launched(kernel, {{gx, gy, gz}, {bx, by, bz}, smem, stream_of(stream, is_per_thread), nullptr, 0}, false, each, \
                extra))                                                                                \
  WRAP(cuLaunchCooperativeKernel##suffix,                                                              \
       (Handle kernel, U gx, U gy, U gz, U bx, U by, U bz, U smem, Handle stream, void **each),        \
       (kernel, gx, gy, gz, bx, by, bz, smem, stream, each),                                           \
       launched(kernel, {{gx, gy, gz}, {bx, by, bz}, smem, stream_of(stream, is_per_thread), nullptr, 0}, true, each, \
                nullptr))                                                                              \
  WRAP(cuLaunchKernelEx##suffix, (const Config *config, Handle kernel, void **each, void **extra),     \
       (config, kernel, each, extra), {                                                                \
         Config seen = *config;                                                                        \
         seen.stream = stream_of(seen.stream, is_per_thread);                                          \
         launched(kernel, seen, false, each, extra);                                                   \
       })                                                                                              \
  WRAP(cuMemsetD8Async##suffix, (Address to, unsigned char value, size_t count, Handle stream),        \
       (to, value, count, stream), filled(stream_of(stream, is_per_thread), to, value, 1, count))      \
  WRAP(cuMemsetD16Async##suffix, (Address to, unsigned short value, size_t count, Handle stream),      \
       (to, value, count, stream), filled(stream_of(stream, is_per_thread), to, value, 2, count))      \
  WRAP(cuMemsetD32Async##suffix, (Address to, U value, size_t count, Handle stream), (to, value, count, stream), \
       filled(stream_of(stream, is_per_thread), to, value, 4, count))                                  \
  WRAP(cuMemcpyAsync##suffix, (Address to, Address from, size_t bytes, Handle stream), (to, from, bytes, stream), \
       copied(stream_of(stream, is_per_thread), to, from, bytes))
LAUNCHES(, false)
LAUNCHES(_ptsz, true)

#define FILLS(suffix, stream)                                                                          \
  WRAP(cuMemsetD8_v2##suffix, (Address to, unsigned char value, size_t count), (to, value, count),     \
       filled(stream, to, value, 1, count))                                                            \
  WRAP(cuMemsetD16_v2##suffix, (Address to, unsigned short value, size_t count), (to, value, count),   \
       filled(stream, to, value, 2, count))                                                            \
  WRAP(cuMemsetD32_v2##suffix, (Address to, U value, size_t count), (to, value, count),                \
       filled(stream, to, value, 4, count))                                                            \
  WRAP(cuMemcpyDtoD_v2##suffix, (Address to, Address from, size_t bytes), (to, from, bytes),           \
       copied(stream, to, from, bytes))                                                                \
  WRAP(cuMemcpy##suffix, (Address to, Address from, size_t bytes), (to, from, bytes), copied(stream, to, from, bytes))
FILLS(, nullptr)
FILLS(_ptds, reinterpret_cast<Handle>(PER_THREAD))
WRAP(cuMemcpyDtoDAsync_v2, (Address to, Address from, size_t bytes, Handle stream), (to, from, bytes, stream),
     copied(stream, to, from, bytes))
WRAP(cuMemcpyDtoDAsync_v2_ptsz, (Address to, Address from, size_t bytes, Handle stream), (to, from, bytes, stream),
     copied(stream_of(stream, true), to, from, bytes))

#define MARKS(name, suffix) MARK(name) MARK(name##suffix)
MARKS(cuGraphLaunch, _ptsz)
MARKS(cuStreamBeginCapture_v2, _ptsz)
MARKS(cuLaunchHostFunc, _ptsz)
MARKS(cuMemcpyHtoDAsync_v2, _ptsz)
MARKS(cuMemcpyDtoHAsync_v2, _ptsz)
MARKS(cuMemcpyHtoD_v2, _ptds)
MARKS(cuMemcpyDtoH_v2, _ptds)
MARKS(cuMemcpy2DAsync_v2, _ptsz)
MARKS(cuMemcpy2DUnaligned_v2, _ptds)
MARKS(cuMemcpy2D_v2, _ptds)
MARKS(cuMemcpy3DAsync_v2, _ptsz)
MARKS(cuMemcpy3D_v2, _ptds)
MARKS(cuMemcpyPeerAsync, _ptsz)
MARKS(cuMemsetD2D8Async, _ptsz)
MARKS(cuMemsetD2D16Async, _ptsz)
MARKS(cuMemsetD2D32Async, _ptsz)
MARKS(cuStreamWriteValue32_v2, _ptsz)
MARKS(cuStreamWriteValue64_v2, _ptsz)

// Versions before these take other arguments.
static bool is_old(const char *name, int version) {
  return version < (strcmp(name, "cuGetProcAddress") ? strcmp(name, "cuStreamBeginCapture") ? 0 : 10010 : 12000);
}

static void put_ours(const char *name, void **found, int version, uint64_t flags) {
  if (!is_ready || !found || !*found) return;
  for (const Row &row : rows())
    if (*row.real == *found) {
      *found = row.ours;
      return;
    }
  const bool is_per_thread = flags & PER_THREAD;
  for (const char *second : {"_v2", ""})
    for (const char *suffix : {"_ptsz", "_ptds", ""}) {
      if (is_per_thread != (*suffix != 0) || (*second && is_old(name, version))) continue;
      const Row *row = row_of((std::string(name) + second + suffix).c_str());
      if (!row || !*row->real) continue;
      *found = row->ours;
      return;
    }
}

WRAP(cuGetProcAddress, (const char *name, void **found, int version, uint64_t flags), (name, found, version, flags),
     put_ours(name, found, version, flags))
WRAP(cuGetProcAddress_v2, (const char *name, void **found, int version, uint64_t flags, int *status),
     (name, found, version, flags, status), put_ours(name, found, version, flags))

EXPORT void *dlsym(void *handle, const char *name) noexcept {
  if (is_ready && name[0] == 'c' && name[1] == 'u')
    if (const Row *row = row_of(name)) {
      void *found = real_dlsym()(handle, name);
      return found && found == *row->real ? row->ours : found;
    }
  return real_dlsym()(handle, name);  // at its end, so that RTLD_NEXT means what it meant to the caller
}

static const bool has_begun = (begin(), true);
