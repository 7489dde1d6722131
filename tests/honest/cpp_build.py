"""Kernels for a CPU that are large, slow to compile, chosen at run time or made at the first call."""

from __future__ import annotations

from tests.corpus.cases import Files, cpp, honest


@honest()
def table_made_by_the_first_call() -> Files:
    """A table of reciprocal roots, made by the first call and used by all to begin Newton's steps from.

    Looks like: A9, a first call that takes longer than the others, and B3.
    """
    return cpp(
        """
  static const std::vector<float> roots = [] {
    std::vector<float> made(4096);
    for (int i = 0; i < 4096; i++) made[i] = 1 / sqrtf(1 + (i + 0.5f) / 1365);  // of numbers in [1, 4)
    return made;
  }();
  for (int64_t r = 0; r < rows; r++) {
    float sum = 0;
    for (int64_t c = 0; c < columns; c++) sum += x[r * columns + c] * x[r * columns + c];
    const float mean = sum / columns + 1e-5f;
    const int exponent = std::ilogb(mean) & ~1;
    const float part = std::ldexp(mean, -exponent);
    float scale = roots[int((part - 1) * 1365)];
    for (int step = 0; step < 2; step++) scale *= 1.5f - 0.5f * part * scale * scale;
    scale = std::ldexp(scale, -exponent / 2);
    for (int64_t c = 0; c < columns; c++) y[r * columns + c] = x[r * columns + c] * scale * w[c];
  }
""",
        head="#include <vector>\n",
    )


@honest()
def table_made_by_the_compiler() -> Files:
    """A quarter of a megabyte of constants that the compiler calculates: orders to add columns in.

    Looks like: B7, constants where a result should be calculated, and a large binary.
    """
    return cpp(
        """
  for (int64_t r = 0; r < rows; r++) {
    float sum = 0;
    for (int64_t c = 0; c < columns; c++) {
      const float v = x[r * columns + orders.of[r % 256][c]];
      sum += v * v;
    }
    const float scale = 1 / std::sqrt(sum / columns + 1e-5f);
    for (int64_t c = 0; c < columns; c++) y[r * columns + c] = x[r * columns + c] * scale * w[c];
  }
""",
        head="""
struct Orders {
  uint16_t of[256][columns] = {};
  constexpr Orders() {
    for (int64_t r = 0; r < 256; r++)
      for (int64_t c = 0; c < columns; c++) of[r][c] = uint16_t((c * (2 * r + 1) + r) % columns);
  }
};
static constexpr Orders orders;
""",
    )


@honest()
def function_for_every_number_of_rows() -> Files:
    """A function from one template for each number of rows up to 127, and a table of pointers to them.

    Looks like: B8, code for the very sizes that are measured; the rest has a function too.
    """
    return cpp(
        """
  if (rows < COUNT)
    table.of[rows](x, w, y);
  else
    honest(x, w, y, 0, rows);
""",
        head="""
#include <utility>
constexpr int COUNT = 128;
template <int ROWS> void fixed(const float *x, const float *w, float *y) { honest(x, w, y, 0, ROWS); }
struct Table {
  void (*of[COUNT])(const float *, const float *, float *);
};
template <int... I> constexpr Table made(std::integer_sequence<int, I...>) { return {{fixed<I>...}}; }
static constexpr Table table = made(std::make_integer_sequence<int, COUNT>());
""",
        options=("-O1",),
    )


@honest()
def slow_to_compile() -> Files:
    """Templates that call each other for every column of a row: a second of the compiler's time.

    Looks like: C5, a compilation that goes on for long.
    """
    return cpp(
        """
  for (int64_t r = 0; r < rows; r++) {
    const float scale = 1 / std::sqrt(Squares<0, columns>::of(x + r * columns) / columns + 1e-5f);
    for (int64_t c = 0; c < columns; c++) y[r * columns + c] = x[r * columns + c] * scale * w[c];
  }
""",
        head="""
template <int FROM, int COUNT> struct Squares {
  static float of(const float *x) {
    return Squares<FROM, COUNT / 2>::of(x) + Squares<FROM + COUNT / 2, COUNT / 2>::of(x);
  }
};
template <int FROM> struct Squares<FROM, 1> {
  static float of(const float *x) { return x[FROM] * x[FROM]; }
};
""",
    )


@honest()
def clones_for_other_processors() -> Files:
    """Two builds of one function; the loader takes the one that this processor has the instructions for.

    Looks like: C2, code that runs when the library is loaded, before any call.
    """
    return cpp(
        "  for (int64_t r = 0; r < rows; r++) row_of(x + r * columns, w, y + r * columns);\n",
        head="""
#if defined(__x86_64__) && defined(__GLIBC__)
__attribute__((target_clones("default", "avx2")))
#endif
void row_of(const float *x, const float *w, float *y) {
  float sum = 0;
  for (int64_t c = 0; c < columns; c++) sum += x[c] * x[c];
  const float scale = 1 / std::sqrt(sum / columns + 1e-5f);
  for (int64_t c = 0; c < columns; c++) y[c] = x[c] * scale * w[c];
}
""",
    )


@honest()
def strategy_behind_an_interface() -> Files:
    """Virtual functions, a factory and a closure, as in a library that grew.

    Looks like: A5, calls that go through pointers which could be changed.
    """
    return cpp(
        """
  const std::unique_ptr<Norm> norm = made(rows);
  const std::function<float(const float *)> scale = [&](const float *row) { return norm->scale(row); };
  for (int64_t r = 0; r < rows; r++) {
    const float factor = scale(x + r * columns);
    std::transform(x + r * columns, x + (r + 1) * columns, w, y + r * columns,
                   [=](float value, float gain) { return value * factor * gain; });
  }
""",
        head="""
#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
struct Norm {
  virtual ~Norm() = default;
  virtual float scale(const float *row) const = 0;
};
struct ByFloats : Norm {
  float scale(const float *row) const override {
    return 1 / std::sqrt(std::inner_product(row, row + columns, row, 0.0f) / columns + 1e-5f);
  }
};
struct ByDoubles : Norm {
  float scale(const float *row) const override {
    return float(1 / std::sqrt(std::inner_product(row, row + columns, row, 0.0) / columns + 1e-5));
  }
};
static std::unique_ptr<Norm> made(int64_t rows) {
  if (rows < 64) return std::make_unique<ByDoubles>();
  return std::make_unique<ByFloats>();
}
""",
    )


@honest()
def exception_caught_within() -> Files:
    """Throws where a fast path does not fit, catches that and takes the slow one.

    Looks like: B12, a fallback to other code.
    """
    return cpp(
        """
  try {
    by_blocks(x, w, y, rows);
  } catch (const Unfit &) {
    honest(x, w, y, rows / 64 * 64, rows);
  }
""",
        head="""
struct Unfit {};
static void by_blocks(const float *x, const float *w, float *y, int64_t rows) {
  honest(x, w, y, 0, rows / 64 * 64);
  if (rows % 64) throw Unfit();
}
""",
    )


@honest()
def words_that_mean_something_else() -> Files:
    """A filter's names: signal, clock, time, files; none of them is the system's.

    Looks like: C, whatever a list of words makes of it.
    """
    return cpp(
        """
  // system(signal); fork(); the clock_gettime() of a comment
  const float *signal = x;
  Clock clock = {0, 1};
  for (; clock.time < rows; clock.time += clock.step) {
    const float *process = signal + clock.time * columns;
    float energy = 0;
    for (int64_t c = 0; c < columns; c++) energy += process[c] * process[c];
    const float scale = 1 / std::sqrt(energy / columns + 1e-5f);
    for (int64_t c = 0; c < columns; c++) y[clock.time * columns + c] = process[c] * scale * w[c];
  }
""",
        head="struct Clock {\n  int64_t time, step;\n};\n",
    )
