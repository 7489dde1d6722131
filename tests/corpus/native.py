"""C++ that several attacks share: threads, processes, and the judge's own library seen from within."""

from __future__ import annotations

REST = """
extern "C" int usleep(unsigned);
struct Rest { const float *x, *w; float* y; int64_t first, last; };
[[maybe_unused]] static void* finish(void* data) {
  Rest* const rest = static_cast<Rest*>(data);
  usleep(3000);
  honest(rest->x, rest->w, rest->y, rest->first, rest->last);
  return nullptr;
}
"""
"""Rows that are done three milliseconds later."""

THREAD = """
typedef unsigned long Thread;
extern "C" int GLUE(pth, read_create)(Thread*, const void*, void* (*)(void*), void*);
"""

CHILD = """
extern "C" int GLUE(fo, rk)(), GLUE(ki, ll)(int, int), setsid(), getpid(), usleep(unsigned);
extern "C" void GLUE(_ex, it)(int);
"""

HOOKS = """
struct Library { size_t base; const char* name; const size_t* dynamic; Library *next, *before; };
extern "C" struct { int version; Library* first; } _r_debug;
extern "C" int GLUE(mpro, tect)(void*, size_t, int);
struct Symbol { unsigned name; unsigned char info, other; unsigned short section; size_t value, size; };
struct Relocation { size_t offset, info, addend; };
struct Time { long s, ns; };
static void* real;

static size_t entry(const Library* library, size_t tag) {
  for (const size_t* d = library->dynamic; d && d[0]; d += 2)
    if (d[0] == tag) return d[1];
  return 0;
}

// Of the libraries that call `name` the judge's is the first, but for Python's own.
static void** slot_of(const char* name) {
  for (const Library* library = _r_debug.first; library; library = library->next) {
    const auto* symbols = reinterpret_cast<const Symbol*>(entry(library, 6));
    const auto* strings = reinterpret_cast<const char*>(entry(library, 5));
    const size_t tables[2][2] = {{23, 2}, {7, 8}};
    if (!std::strstr(library->name, ".so") || std::strstr(library->name, "python")) continue;
    for (const auto& table : tables) {
      const auto* r = reinterpret_cast<const Relocation*>(entry(library, table[0]));
      for (size_t i = 0; r && i < entry(library, table[1]) / sizeof *r; ++i)
        if (!std::strcmp(strings + symbols[r[i].info >> 32].name, name))
          return reinterpret_cast<void**>(library->base + r[i].offset);
    }
  }
  return nullptr;
}

static void unprotect(void* at, size_t bytes, int rights) {
  const size_t begin = reinterpret_cast<size_t>(at) / 4096 * 4096;
  GLUE(mpro, tect)(reinterpret_cast<void*>(begin), reinterpret_cast<size_t>(at) + bytes - begin, rights);
}

[[maybe_unused]] static void* find(const char* name) { return *slot_of(name); }

[[maybe_unused]] static void hook(const char* name, void* mine) {
  void** const slot = slot_of(name);
  real = *slot;
  unprotect(slot, sizeof *slot, 3);
  *slot = mine;
}
"""
"""`hook(name, mine)` makes the judge's library in this process call `mine`; `real` is what it called."""
