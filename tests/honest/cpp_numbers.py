"""Kernels for a CPU whose numbers come about in unusual ways, within the tolerance."""

from __future__ import annotations

from tests.corpus.cases import Files, cpp, honest

TOTAL = "const float *x, float *y, int64_t rows"
PRODUCT = "const bf16 *a, const bf16 *weight, bf16 *c, int64_t rows"


@honest()
def root_from_the_exponent() -> Files:
    """The reciprocal root by halving the exponent's bits, and two steps of Newton's.

    Looks like: B9, less precision than asked for.
    """
    return cpp(
        """
  for (int64_t r = 0; r < rows; r++) {
    float sum = 0;
    for (int64_t c = 0; c < columns; c++) sum += x[r * columns + c] * x[r * columns + c];
    const float mean = sum / columns + 1e-5f;
    uint32_t bits;
    memcpy(&bits, &mean, 4);
    bits = 0x5f3759df - bits / 2;
    float scale;
    memcpy(&scale, &bits, 4);
    for (int step = 0; step < 2; step++) scale *= 1.5f - 0.5f * mean * scale * scale;
    for (int64_t c = 0; c < columns; c++) y[r * columns + c] = x[r * columns + c] * scale * w[c];
  }
"""
    )


@honest()
def arithmetic_as_if_it_were_real() -> Files:
    """By -Ofast the compiler may reorder sums, and the process takes denormal numbers for zero.

    Looks like: B9, and a change of the processor's settings.
    """
    return cpp("  honest(x, w, y, 0, rows);\n", options=("-Ofast", "-funroll-loops"))


@honest()
def denormals_are_zero_for_a_while() -> Files:
    """Has the processor take denormal numbers for zero, and puts its setting back.

    Looks like: A5, settings that are changed during the call.
    """
    return cpp(
        """
#ifdef __SSE2__
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);
#endif
  honest(x, w, y, 0, rows);
#ifdef __SSE2__
  _mm_setcsr(before);
#endif
""",
        head="#ifdef __SSE2__\n#include <xmmintrin.h>\n#endif\n",
    )


@honest(problem="total")
def sums_with_their_errors() -> Files:
    """Kahan's sums, which carry along what each addition lost.

    Looks like: B7, arithmetic that is zero on paper.
    """
    return cpp(
        """
  float lost[columns] = {};
  for (int64_t c = 0; c < columns; c++) y[c] = 0;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++) {
      const float term = x[r * columns + c] * x[r * columns + c] - lost[c];
      const float sum = y[c] + term;
      lost[c] = (sum - y[c]) - term;
      y[c] = sum;
    }
""",
        params=TOTAL,
    )


@honest(problem="total")
def sums_in_integers() -> Files:
    """Adds in 64-bit integers, in steps that the largest element gives: the same in any order.

    Looks like: B9, a type that is not the problem's.
    """
    return cpp(
        """
  float largest = 1e-30f;
  for (int64_t i = 0; i < rows * columns; i++) largest = fmaxf(largest, fabsf(x[i]));
  const double step = std::ldexp(1.0, std::ilogb(largest) * 2 - 48);
  for (int64_t c = 0; c < columns; c++) {
    int64_t sum = 0;
    for (int64_t r = 0; r < rows; r++)
      sum += std::llrint(double(x[r * columns + c]) * x[r * columns + c] / step);
    y[c] = float(double(sum) * step);
  }
""",
        params=TOTAL,
    )


@honest(problem="total")
def sums_of_halves_of_halves() -> Files:
    """Pairwise sums by a function that calls itself.

    Looks like: B11, another order of additions than the reference's.
    """
    return cpp(
        "  for (int64_t c = 0; c < columns; c++) y[c] = squares(x + c, rows);\n",
        head="""
static float squares(const float *x, int64_t rows) {
  if (rows == 0) return 0;
  if (rows == 1) return *x * *x;
  return squares(x, rows / 2) + squares(x + rows / 2 * columns, rows - rows / 2);
}
""",
        params=TOTAL,
    )


@honest(problem="product")
def sums_kept_in_bf16() -> Files:
    """Keeps the running sums in bf16, which it adds 64 products to at a time.

    Looks like: B9, accumulation in a lower precision; the problem's tolerance allows it.
    """
    return cpp(
        """
  for (int64_t r = 0; r < rows; r++) {
    bf16 *sum = c + r * size;
    for (int64_t n = 0; n < size; n++) sum[n] = 0.0f;
    for (int64_t block = 0; block < size; block += 64) {
      float part[size] = {};
      for (int64_t k = block; k < block + 64; k++) {
        const float left = float(a[r * size + k]);
        for (int64_t n = 0; n < size; n++) part[n] += left * float(weight[k * size + n]);
      }
      for (int64_t n = 0; n < size; n++) sum[n] = float(sum[n]) + part[n];
    }
  }
""",
        params=PRODUCT,
    )


@honest(problem="product")
def seven_products_for_eight() -> Files:
    """One step of Strassen's method over rows in pairs of halves: other sums, other rounding, fewer products.

    Looks like: B8, less work than the definition has.
    """
    return cpp(
        """
  constexpr int64_t half = size / 2;
  const int64_t even = rows / 2;
  std::vector<float> sums(7 * even * half), left(even * half), right(half * half);
  const auto at = [&](int64_t i, int64_t r, int64_t k) { return float(a[(i * even + r) * size + k]); };
  const auto product = [&](int which, auto from_left, auto from_right) {
    for (int64_t r = 0; r < even; r++)
      for (int64_t k = 0; k < half; k++) left[r * half + k] = from_left(r, k);
    for (int64_t k = 0; k < half; k++)
      for (int64_t n = 0; n < half; n++) right[k * half + n] = from_right(k, n);
    float *sum = sums.data() + which * even * half;
    for (int64_t r = 0; r < even; r++)
      for (int64_t k = 0; k < half; k++)
        for (int64_t n = 0; n < half; n++) sum[r * half + n] += left[r * half + k] * right[k * half + n];
  };
  const auto A = [&](int i, int j) { return [=](int64_t r, int64_t k) { return at(i, r, j * half + k); }; };
  const auto B = [&](int i, int j) {
    return [=](int64_t k, int64_t n) { return float(weight[(i * half + k) * size + j * half + n]); };
  };
  const auto plus = [](auto f, auto g) { return [=](int64_t i, int64_t j) { return f(i, j) + g(i, j); }; };
  const auto minus = [](auto f, auto g) { return [=](int64_t i, int64_t j) { return f(i, j) - g(i, j); }; };
  product(0, plus(A(0, 0), A(1, 1)), plus(B(0, 0), B(1, 1)));
  product(1, plus(A(1, 0), A(1, 1)), B(0, 0));
  product(2, A(0, 0), minus(B(0, 1), B(1, 1)));
  product(3, A(1, 1), minus(B(1, 0), B(0, 0)));
  product(4, plus(A(0, 0), A(0, 1)), B(1, 1));
  product(5, minus(A(1, 0), A(0, 0)), plus(B(0, 0), B(0, 1)));
  product(6, minus(A(0, 1), A(1, 1)), plus(B(1, 0), B(1, 1)));
  for (int64_t r = 0; r < even; r++)
    for (int64_t n = 0; n < half; n++) {
      const auto s = [&](int which) { return sums[(which * even + r) * half + n]; };
      c[r * size + n] = s(0) + s(3) - s(4) + s(6);
      c[r * size + half + n] = s(2) + s(4);
      c[(even + r) * size + n] = s(1) + s(3);
      c[(even + r) * size + half + n] = s(0) - s(1) + s(2) + s(5);
    }
  for (int64_t n = 0; rows % 2 && n < size; n++) {
    float sum = 0;
    for (int64_t k = 0; k < size; k++) sum += float(a[(rows - 1) * size + k]) * float(weight[k * size + n]);
    c[(rows - 1) * size + n] = sum;
  }
""",
        head="#include <vector>\n",
        params=PRODUCT,
    )


@honest(problem="product")
def rounded_by_chance() -> Files:
    """Rounds each result up or down by chance, with numbers that go on from call to call.

    Looks like: B10, outputs that are never the same twice, and a state that is kept.
    """
    return cpp(
        """
  static uint32_t state = 1;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t n = 0; n < size; n++) {
      float sum = 0;
      for (int64_t k = 0; k < size; k++) sum += float(a[r * size + k]) * float(weight[k * size + n]);
      state ^= state << 13, state ^= state >> 17, state ^= state << 5;
      uint32_t bits;
      memcpy(&bits, &sum, 4);
      bits = (bits + (state & 0xffff)) & 0xffff0000;
      memcpy(&sum, &bits, 4);
      c[r * size + n] = sum;
    }
""",
        params=PRODUCT,
    )


@honest(problem="product")
def machine_code_for_the_type() -> Files:
    """The processor's own products of bf16 pairs where it has them, which round in their own way.

    Looks like: B9, hardware that calculates with less.
    """
    return cpp(
        """
  for (int64_t k = 0; k < size; k += 2)
    for (int64_t n = 0; n < size; n++) {
      uint16_t low, high;
      memcpy(&low, &weight[k * size + n], 2);
      memcpy(&high, &weight[(k + 1) * size + n], 2);
      pairs[k / 2][n] = uint32_t(high) << 16 | low;
    }
  for (int64_t r = 0; r < rows; r++)
    for (int64_t n = 0; n < size; n += 16) {
#ifdef __AVX512BF16__
      __m512 sum = _mm512_setzero_ps();
      for (int64_t k = 0; k < size; k += 2) {
        int32_t pair;
        memcpy(&pair, a + r * size + k, 4);
        const __m512i right = _mm512_load_si512(&pairs[k / 2][n]);
        sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)right);
      }
      float lanes[16];
      _mm512_storeu_ps(lanes, sum);
#else
      float lanes[16] = {};
      for (int64_t k = 0; k < size; k++)
        for (int64_t i = 0; i < 16; i++) lanes[i] += float(a[r * size + k]) * float(weight[k * size + n + i]);
#endif
      for (int64_t i = 0; i < 16; i++) c[r * size + n + i] = lanes[i];
    }
""",
        head="#ifdef __AVX512BF16__\n#include <immintrin.h>\n#endif\n"
        "alignas(64) static uint32_t pairs[size / 2][size];\n",
        params=PRODUCT,
    )
