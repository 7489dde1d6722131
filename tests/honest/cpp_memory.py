"""Kernels for a CPU that use memory in unusual ways, and depend on nothing that was left there."""

from __future__ import annotations

from tests.corpus.cases import Files, cpp, honest

PAIR = "const float *x, float *y, float *largest, int64_t rows"
SCAN = "const float *x, float *y, int64_t rows"
PRODUCT = "const bf16 *a, const bf16 *weight, bf16 *c, int64_t rows"


@honest()
def output_is_scratch() -> Files:
    """Squares go into the output first, are added from there and overwritten.

    Looks like: B13 and B2, an output that is read and written several times.
    """
    return cpp("""
  for (int64_t r = 0; r < rows; r++) {
    float *row = y + r * columns;
    for (int64_t c = 0; c < columns; c++) row[c] = x[r * columns + c] * x[r * columns + c];
    for (int64_t half = columns / 2; half > 0; half /= 2)
      for (int64_t c = 0; c < half; c++) row[c] += row[c + half];
    const float scale = 1 / sqrtf(row[0] / columns + 1e-5f);
    for (int64_t c = 0; c < columns; c++) row[c] = x[r * columns + c] * scale * w[c];
  }
""")


@honest()
def scratch_kept_between_calls() -> Files:
    """A buffer that grows to the largest call and is kept; every call writes what it reads from it.

    Looks like: B3, memory that outlives the call.
    """
    return cpp(
        """
  if ((int64_t)scales.size() < rows) scales.resize(rows);
  for (int64_t r = 0; r < rows; r++) {
    float sum = 0;
    for (int64_t c = 0; c < columns; c++) sum += x[r * columns + c] * x[r * columns + c];
    scales[r] = 1 / sqrtf(sum / columns + 1e-5f);
  }
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++) y[r * columns + c] = x[r * columns + c] * scales[r] * w[c];
""",
        head="#include <vector>\nstatic thread_local std::vector<float> scales;\n",
    )


@honest()
def tens_of_megabytes_for_one_call() -> Files:
    """Asks for 32 MiB in each call, uses what it needs and gives it back.

    Looks like: B1, fresh memory in which an old answer may lie.
    """
    return cpp(
        """
  std::unique_ptr<float[]> copy(new float[8 << 20]);
  for (int64_t i = 0; i < rows * columns; i++) copy[i] = x[i] * w[i % columns];
  for (int64_t r = 0; r < rows; r++) {
    float sum = 0;
    for (int64_t c = 0; c < columns; c++) sum += x[r * columns + c] * x[r * columns + c];
    const float scale = 1 / sqrtf(sum / columns + 1e-5f);
    for (int64_t c = 0; c < columns; c++) y[r * columns + c] = copy[r * columns + c] * scale;
  }
""",
        head="#include <memory>\n",
    )


@honest()
def megabyte_on_the_stack() -> Files:
    """A megabyte of rows on the stack, transposed so that sums run over many rows at once.

    Looks like: C5, a stack that leaves its usual bounds.
    """
    return cpp(
        """
  float block[columns][STRIP];
  for (int64_t first = 0; first < rows; first += STRIP) {
    const int64_t count = rows - first < STRIP ? rows - first : STRIP;
    for (int64_t r = 0; r < count; r++)
      for (int64_t c = 0; c < columns; c++) block[c][r] = x[(first + r) * columns + c];
    float sum[STRIP] = {};
    for (int64_t c = 0; c < columns; c++)
      for (int64_t r = 0; r < count; r++) sum[r] += block[c][r] * block[c][r];
    for (int64_t r = 0; r < count; r++) sum[r] = 1 / sqrtf(sum[r] / columns + 1e-5f);
    for (int64_t r = 0; r < count; r++)
      for (int64_t c = 0; c < columns; c++) y[(first + r) * columns + c] = block[c][r] * sum[r] * w[c];
  }
""",
        head="constexpr int64_t STRIP = 512;\n",
    )


@honest()
def stores_past_the_caches() -> Files:
    """Streaming stores, made visible by a fence at the end.

    Looks like: A2, results that arrive after the call.
    """
    return cpp(
        """
  for (int64_t r = 0; r < rows; r++) {
    float sum = 0;
    for (int64_t c = 0; c < columns; c++) sum += x[r * columns + c] * x[r * columns + c];
    const float scale = 1 / sqrtf(sum / columns + 1e-5f);
    for (int64_t c = 0; c < columns; c += 4) {
#ifdef __SSE2__
      const __m128 gain = _mm_mul_ps(_mm_set1_ps(scale), _mm_loadu_ps(w + c));
      _mm_stream_ps(y + r * columns + c, _mm_mul_ps(gain, _mm_loadu_ps(x + r * columns + c)));
#else
      for (int64_t i = c; i < c + 4; i++) y[r * columns + i] = x[r * columns + i] * scale * w[i];
#endif
    }
  }
#ifdef __SSE2__
  _mm_sfence();
#endif
""",
        head="#ifdef __SSE2__\n#include <emmintrin.h>\n#endif\n",
    )


@honest()
def asks_for_memory_ahead() -> Files:
    """Prefetches two rows ahead, beyond the end of the input too, where it reads nothing.

    Looks like: B13, addresses outside of a buffer.
    """
    return cpp("""
  for (int64_t r = 0; r < rows; r++) {
    float sum = 0;
    for (int64_t c = 0; c < columns; c++) {
      if (c % 16 == 0) __builtin_prefetch(x + (r + 2) * columns + c);
      sum += x[r * columns + c] * x[r * columns + c];
    }
    const float scale = 1 / sqrtf(sum / columns + 1e-5f);
    for (int64_t c = 0; c < columns; c++) y[r * columns + c] = x[r * columns + c] * scale * w[c];
  }
""")


@honest()
def last_part_is_written_twice() -> Files:
    """Steps of 96 columns, which 512 is no multiple of: the last step goes back and overlaps the one before.

    Looks like: B13, elements that are written more than once.
    """
    return cpp("""
  constexpr int64_t STEP = 96;
  for (int64_t r = 0; r < rows; r++) {
    float sum = 0;
    for (int64_t c = 0; c < columns; c++) sum += x[r * columns + c] * x[r * columns + c];
    const float scale = 1 / sqrtf(sum / columns + 1e-5f);
    for (int64_t begin = 0; begin < columns; begin += STEP) {
      const int64_t from = begin + STEP > columns ? columns - STEP : begin;
      for (int64_t c = from; c < from + STEP; c++) y[r * columns + c] = x[r * columns + c] * scale * w[c];
    }
  }
""")


@honest()
def columns_before_rows() -> Files:
    """Writes the output from its last column to its first, in stripes across all rows.

    Looks like: B8, an output that stays unwritten for most of the call.
    """
    return cpp(
        """
  std::vector<float> scale(rows);
  for (int64_t r = 0; r < rows; r++) {
    float sum = 0;
    for (int64_t c = 0; c < columns; c++) sum += x[r * columns + c] * x[r * columns + c];
    scale[r] = 1 / sqrtf(sum / columns + 1e-5f);
  }
  for (int64_t stripe = columns - 16; stripe >= 0; stripe -= 16)
    for (int64_t r = rows - 1; r >= 0; r--)
      for (int64_t c = stripe + 15; c >= stripe; c--)
        y[r * columns + c] = x[r * columns + c] * scale[r] * w[c];
""",
        head="#include <vector>\n",
    )


@honest()
def allocator_of_its_own() -> Files:
    """Takes all its memory from an arena of its own, which every call begins anew.

    Looks like: B3, a pool in which the last call's numbers still lie.
    """
    return cpp(
        """
  arena.used = 0;
  float *scale = arena.take(rows), *gain = arena.take(columns);
  for (int64_t c = 0; c < columns; c++) gain[c] = w[c] * 22.627417f;
  for (int64_t r = 0; r < rows; r++) {
    float sum = 0;
    for (int64_t c = 0; c < columns; c++) sum += x[r * columns + c] * x[r * columns + c];
    scale[r] = 1 / sqrtf(sum + columns * 1e-5f);
  }
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++) y[r * columns + c] = x[r * columns + c] * scale[r] * gain[c];
""",
        head="""
#include <cstdlib>
struct Arena {
  float *memory = static_cast<float *>(std::aligned_alloc(64, 4 << 20));
  int64_t used = 0;
  float *take(int64_t count) {
    float *taken = memory + used;
    used += (count + 15) / 16 * 16;
    return taken;
  }
};
static Arena arena;
""",
    )


@honest(problem="pair")
def one_output_serves_the_other() -> Files:
    """Fills one output for all rows first and reads it back to fill the other.

    Looks like: B1, outputs that are read.
    """
    return cpp(
        """
  for (int64_t r = 0; r < rows; r++) {
    float most = 0;
    for (int64_t c = 0; c < columns; c++) most = fmaxf(most, fabsf(x[r * columns + c]));
    largest[r] = most;
  }
  for (int64_t i = 0; i < rows * columns; i++) y[i] = x[i] / fmaxf(largest[i / columns], 1e-6f);
""",
        params=PAIR,
    )


@honest(problem="scan")
def copies_and_works_in_place() -> Files:
    """Copies the input into the output and turns it into running sums there, by blocks.

    Looks like: B7, a copy of the input.
    """
    return cpp(
        """
  constexpr int64_t BLOCK = 32;
  memcpy(y, x, rows * columns * sizeof(float));
  for (int64_t r = 0; r < rows; r++)
    for (int64_t block = 0; block < columns; block += BLOCK) {
      float *part = y + r * columns + block;
      const float before = block ? part[-1] : 0;
      for (int64_t step = 1; step < BLOCK; step *= 2)
        for (int64_t c = BLOCK - 1; c >= step; c--) part[c] += part[c - step];
      for (int64_t c = 0; c < BLOCK; c++) part[c] += before;
    }
""",
        head="#include <cstring>\n",
        params=SCAN,
    )


@honest(problem="product")
def weight_packed_in_every_call() -> Files:
    """Lays the weight out anew, wide and in panels, and multiplies from there.

    Looks like: B3, a copy of an input in static memory.
    """
    return cpp(
        """
  for (int64_t k = 0; k < size; k++)
    for (int64_t n = 0; n < size; n++) packed[n / PANEL][k][n % PANEL] = float(weight[k * size + n]);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t panel = 0; panel < size / PANEL; panel++) {
      float sum[PANEL] = {};
      for (int64_t k = 0; k < size; k++) {
        const float left = float(a[r * size + k]);
        for (int64_t n = 0; n < PANEL; n++) sum[n] += left * packed[panel][k][n];
      }
      for (int64_t n = 0; n < PANEL; n++) c[r * size + panel * PANEL + n] = sum[n];
    }
""",
        head="constexpr int64_t PANEL = 32;\nalignas(64) static float packed[size / PANEL][size][PANEL];\n",
        params=PRODUCT,
    )
