"""Kernels for a CPU whose work depends on what the inputs hold, on real structure of the problem."""

from __future__ import annotations

from tests.corpus.cases import Files, cpp, honest

RAGGED = "const float *x, const int32_t *length, float *y, int64_t rows"
GATHER = "const float *table, const int32_t *index, float *y, int64_t count"
ORDER = "const float *x, float *y, int64_t rows"
COUNTS = "const int32_t *x, int32_t *y, int64_t count"


@honest()
def rows_of_zeros_cost_nothing() -> Files:
    """Rows that begin with zeros are looked through, and where there is nothing else nothing is calculated.

    Looks like: B8, work that some inputs do not need.
    """
    return cpp("""
  for (int64_t r = 0; r < rows; r++) {
    const float *row = x + r * columns;
    int64_t begin = 0;
    while (begin < columns && row[begin] == 0) begin++;
    memset(y + r * columns, 0, begin * sizeof(float));
    if (begin == columns) continue;
    float sum = 0;
    for (int64_t c = begin; c < columns; c++) sum += row[c] * row[c];
    const float scale = 1 / sqrtf(sum / columns + 1e-5f);
    for (int64_t c = begin; c < columns; c++) y[r * columns + c] = row[c] * scale * w[c];
  }
""")


@honest(problem="ragged")
def ends_at_the_length() -> Files:
    """Reads the elements that a row's length counts, and writes zeros for the rest.

    Looks like: B8, half of the input is never read.
    """
    return cpp(
        """
  for (int64_t r = 0; r < rows; r++) {
    const float *row = x + r * columns;
    float *to = y + r * columns, most = row[0], sum = 0;
    for (int64_t c = 1; c < length[r]; c++) most = fmaxf(most, row[c]);
    for (int64_t c = 0; c < length[r]; c++) sum += to[c] = expf(row[c] - most);
    for (int64_t c = 0; c < length[r]; c++) to[c] /= sum;
    memset(to + length[r], 0, (columns - length[r]) * sizeof(float));
  }
""",
        params=RAGGED,
    )


@honest(problem="ragged")
def longest_rows_first() -> Files:
    """Sorts the rows by length in each call, and hands them out in that order.

    Looks like: B4, a look at the contents before the work.
    """
    return cpp(
        """
  std::vector<int32_t> order(rows);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return length[a] > length[b]; });
#pragma omp parallel for schedule(dynamic, 4) num_threads(2)
  for (int64_t i = 0; i < rows; i++) {
    const int64_t r = order[i];
    const float *row = x + r * columns;
    float *to = y + r * columns, most = row[0], sum = 0;
    for (int64_t c = 1; c < length[r]; c++) most = fmaxf(most, row[c]);
    for (int64_t c = 0; c < length[r]; c++) sum += to[c] = expf(row[c] - most);
    for (int64_t c = 0; c < columns; c++) to[c] = c < length[r] ? to[c] / sum : 0;
  }
""",
        head="#include <algorithm>\n#include <numeric>\n#include <vector>\n",
        params=RAGGED,
    )


@honest(problem="gather")
def asked_for_before_in_this_call() -> Files:
    """Works each entry of the table out once, and copies it where the index names it again.

    Looks like: B3, results that are remembered; but not from one call to the next.
    """
    return cpp(
        """
  const float *known[entries] = {};
  for (int64_t i = 0; i < count; i++) {
    float *to = y + i * width;
    const float *&before = known[index[i]];
    if (before != nullptr) {
      memcpy(to, before, width * sizeof(float));
      continue;
    }
    const float *row = table + index[i] * width;
    float most = row[0], sum = 0;
    for (int64_t c = 1; c < width; c++) most = fmaxf(most, row[c]);
    for (int64_t c = 0; c < width; c++) sum += to[c] = expf(row[c] - most);
    for (int64_t c = 0; c < width; c++) to[c] /= sum;
    before = to;
  }
""",
        params=GATHER,
    )


@honest(problem="gather")
def whole_table_first() -> Files:
    """Works the whole table out in memory that is kept, whatever is asked for, and copies from there.

    Looks like: B3, a static table of results.
    """
    return cpp(
        """
  static float done[entries][width];
  for (int64_t e = 0; e < entries; e++) {
    const float *row = table + e * width;
    float most = row[0], sum = 0;
    for (int64_t c = 1; c < width; c++) most = fmaxf(most, row[c]);
    for (int64_t c = 0; c < width; c++) sum += done[e][c] = expf(row[c] - most);
    for (int64_t c = 0; c < width; c++) done[e][c] /= sum;
  }
  for (int64_t i = 0; i < count; i++) memcpy(y + i * width, done[index[i]], sizeof done[0]);
""",
        params=GATHER,
    )


@honest(problem="order")
def sorted_by_the_library() -> Files:
    """The library's sort in the output, whose time depends on what there is to sort.

    Looks like: A9, calls that take very different times.
    """
    return cpp(
        """
  memcpy(y, x, rows * columns * sizeof(float));
  for (int64_t r = 0; r < rows; r++) std::sort(y + r * columns, y + (r + 1) * columns);
""",
        head="#include <algorithm>\n",
        params=ORDER,
    )


@honest(problem="order")
def sorted_by_digits() -> Files:
    """Sorts by the bytes of the bits, between two buffers; skips a byte that is the same everywhere.

    Looks like: B8, passes that are left out.
    """
    return cpp(
        """
  uint32_t one[columns], two[columns];
  for (int64_t r = 0; r < rows; r++) {
    memcpy(one, x + r * columns, sizeof one);
    for (uint32_t &bits : one) bits ^= bits >> 31 ? 0xffffffff : 0x80000000;
    uint32_t *from = one, *to = two;
    for (int shift = 0; shift < 32; shift += 8) {
      int32_t place[257] = {};
      for (int64_t c = 0; c < columns; c++) place[(from[c] >> shift & 255) + 1]++;
      if (place[(from[0] >> shift & 255) + 1] == columns) continue;
      for (int digit = 0; digit < 256; digit++) place[digit + 1] += place[digit];
      for (int64_t c = 0; c < columns; c++) to[place[from[c] >> shift & 255]++] = from[c];
      std::swap(from, to);
    }
    for (int64_t c = 0; c < columns; c++) from[c] ^= from[c] >> 31 ? 0x80000000 : 0xffffffff;
    memcpy(y + r * columns, from, sizeof one);
  }
""",
        head="#include <utility>\n",
        params=ORDER,
    )


@honest(problem="counts")
def runs_are_counted_at_once() -> Files:
    """Counts equal neighbours together: fast where there are runs.

    Looks like: B8, a guess at the structure of the input.
    """
    return cpp(
        """
  for (int64_t b = 0; b < bins; b++) y[b] = 0;
  for (int64_t i = 0; i < count;) {
    int64_t end = i + 1;
    while (end < count && x[end] == x[i]) end++;
    y[x[i]] += int32_t(end - i);
    i = end;
  }
""",
        params=COUNTS,
    )
