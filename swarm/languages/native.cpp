// The trusted native code of the judge and its runners: clock, caches, calibration. No candidate code here.
// Built once per machine by native.py, always with the same flags.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef void Entry(void* const* arguments, const int64_t* axes);

// CPython's, when a Python process loads this library; there is no need for its headers.
extern "C" __attribute__((weak)) void* PyObject_CallObject(void* callable, void* arguments);

namespace {

constexpr size_t LINE = 64;
constexpr int MAX_SLOTS = 64, MAX_ARGUMENTS = 128, MAX_AXES = 64;

inline int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

// The one place from which every candidate written in C or C++ is called.
__attribute__((noinline)) int64_t timed(Entry* entry, void* const* arguments, const int64_t* axes) {
  const int64_t start = now_ns();
  entry(arguments, axes);
  return now_ns() - start;
}

// Store one line without first reading it into the cache, where the processor can.
template <typename Vector>
inline void stream(Vector* to, const Vector& value) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), reinterpret_cast<const __m512i&>(value));
#elif defined(__AVX__)
  const __m256i* halves = reinterpret_cast<const __m256i*>(&value);
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), halves[0]);
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to) + 1, halves[1]);
#else
  *to = value;
#endif
}

bool transfer(int fd, void* data, size_t bytes, bool sending) {
  ssize_t done;
  do
    done = sending ? send(fd, data, bytes, MSG_NOSIGNAL) : recv(fd, data, bytes, 0);
  while (done < 0);  // EINTR after a stop; anything worse ends with the judge killing us
  return size_t(done) == bytes;
}

}  // namespace

extern "C" {

// Map `bytes` of shared memory with all pages present.
void* swarm_map(int fd, size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// Read every line, so that what was in the cache before is not, and nothing is left dirty.
uint64_t swarm_walk(const void* memory, size_t bytes) {
  const volatile uint64_t* words = static_cast<const volatile uint64_t*>(memory);
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes / 8; i += LINE / 8) sum += words[i];
  return sum;
}

// Write every line back to memory and drop it from every cache of every core. Returns 0 if this
// machine has no such instruction; the caller then walks a larger buffer instead.
int swarm_flush(void* memory, size_t bytes) {
  char* const end = static_cast<char*>(memory) + bytes;
  char* line = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(memory) & ~uintptr_t(LINE - 1));
#if defined(__x86_64__)
  for (; line < end; line += LINE) {
#if defined(__CLFLUSHOPT__)
    _mm_clflushopt(line);
#else
    _mm_clflush(line);
#endif
  }
  _mm_mfence();
  return 1;
#elif defined(__aarch64__)
  for (; line < end; line += LINE) asm volatile("dc civac, %0" ::"r"(line) : "memory");
  asm volatile("dsb ish" ::: "memory");
  return 1;
#else
  (void)end, (void)line;
  return 0;
#endif
}

// A candidate's side of the judge's requests; returns when the judge has gone.
//   request: nonce, then for each slot its arguments (an offset into the arena, or a scalar's bits) and axes
//   answer:  the nonce, then the claimed ns of each slot
void swarm_serve(int control, char* arena, Entry* entry, int n_arguments, const uint8_t* is_scalar, int n_axes) {
  static int64_t request[1 + MAX_SLOTS * (MAX_ARGUMENTS + MAX_AXES)], answer[1 + MAX_SLOTS];
  const int n_words = n_arguments + n_axes;
  for (;;) {
    const ssize_t got = recv(control, request, sizeof request, 0);
    if (got < 0) continue;
    if (got == 0) return;
    const int n_slots = n_words ? int((got / 8 - 1) / n_words) : 1;
    answer[0] = request[0];
    for (int slot = 0; slot < n_slots; ++slot) {
      int64_t* words = request + 1 + slot * n_words;
      void* arguments[MAX_ARGUMENTS];
      for (int i = 0; i < n_arguments; ++i)
        arguments[i] = is_scalar[i] ? static_cast<void*>(words + i) : arena + words[i];
      answer[1 + slot] = timed(entry, arguments, words + n_arguments);
    }
    if (!transfer(control, answer, size_t(1 + n_slots) * 8, true)) return;
  }
}

// The same clock around a Python call; load this library with ctypes.PyDLL to keep the interpreter lock.
int64_t swarm_timed_python(void* callable, void* arguments, void** result) {
  const int64_t start = now_ns();
  *result = PyObject_CallObject(callable, arguments);
  return now_ns() - start;
}

// Nanoseconds to move `bytes` (a multiple of 512) on `threads` threads: 0 read, 1 write, 2 copy, and the
// last two again past the caches: 3 write, 4 copy. In STREAMS places at once: one alone leaves the
// prefetcher, and a fifth of the bandwidth, idle.
int64_t swarm_bandwidth(int pattern, void* to, const void* from, size_t bytes, int threads) {
  constexpr size_t STREAMS = 8;
  typedef uint64_t Vector __attribute__((vector_size(LINE)));
  const size_t length = bytes / LINE / STREAMS;
  const int64_t start = now_ns();
#pragma omp parallel num_threads(threads)
  {
    Vector sum[STREAMS] = {};
#pragma omp for schedule(static)
    for (size_t i = 0; i < length; ++i) {
#pragma GCC unroll 8
      for (size_t k = 0; k < STREAMS; ++k) {
        const Vector* in = static_cast<const Vector*>(from) + k * length + i;
        Vector* out = static_cast<Vector*>(to) + k * length + i;
        if (pattern == 0) sum[k] += *in;
        if (pattern == 1) *out = Vector{} + i;
        if (pattern == 2) *out = *in;
        if (pattern == 3) stream(out, Vector{} + i);
        if (pattern == 4) stream(out, *in);
      }
    }
    asm volatile("" ::"r"(&sum) : "memory");
  }
  return now_ns() - start;
}

// Nanoseconds for `rounds` rounds of independent float32 multiply-adds; `flops` receives how many in all.
int64_t swarm_fma_float32(int64_t rounds, int threads, double* flops) {
  constexpr int CHAINS = 16, LANES = 16;
  typedef float Vector __attribute__((vector_size(4 * LANES)));
  const int64_t start = now_ns();
#pragma omp parallel num_threads(threads)
  {
    Vector sum[CHAINS];
    for (int c = 0; c < CHAINS; ++c) sum[c] = Vector{} + float(c);
    Vector factor = Vector{} + 0.9999f, term = Vector{} + 0.0001f;
    asm volatile("" : "+m"(factor), "+m"(term));
    for (int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 16
      for (int c = 0; c < CHAINS; ++c) sum[c] = sum[c] * factor + term;
    asm volatile("" ::"r"(&sum) : "memory");
  }
  *flops = 2.0 * CHAINS * LANES * double(rounds) * threads;
  return now_ns() - start;
}
}
