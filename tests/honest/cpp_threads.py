"""Kernels for a CPU that share their work among threads, in every way that OpenMP has."""

from __future__ import annotations

from tests.corpus.cases import Files, cpp, honest

TOTAL = "const float *x, float *y, int64_t rows"
COUNTS = "const int32_t *x, int32_t *y, int64_t count"


@honest()
def more_threads_than_cores() -> Files:
    """Four threads whatever the cores; they wait in OpenMP's pool when the call has returned.

    Looks like: A3, threads that outlive the call.
    """
    return cpp("""
#pragma omp parallel for num_threads(4)
  for (int64_t r = 0; r < rows; r++) {
    float sum = 0;
    for (int64_t c = 0; c < columns; c++) sum += x[r * columns + c] * x[r * columns + c];
    const float scale = 1 / sqrtf(sum / columns + 1e-5f);
    for (int64_t c = 0; c < columns; c++) y[r * columns + c] = x[r * columns + c] * scale * w[c];
  }
""")


@honest()
def rows_taken_as_threads_get_free() -> Files:
    """A dynamic schedule: which thread works on a row is another matter in every call.

    Looks like: B11, an order that is never twice the same.
    """
    return cpp("""
#pragma omp parallel for schedule(dynamic, 1) num_threads(3)
  for (int64_t r = rows - 1; r >= 0; r--) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < columns; c++) sum += x[r * columns + c] * x[r * columns + c];
    const float scale = 1 / sqrtf(sum / columns + 1e-5f);
    for (int64_t c = 0; c < columns; c++) y[r * columns + c] = x[r * columns + c] * scale * w[c];
  }
""")


@honest()
def threads_asked_to_keep_apart() -> Files:
    """Asks OpenMP to spread its threads over what cores there are, and two of them to share each row.

    Looks like: A14, a process that moves to cores which are not its own.
    """
    return cpp("""
  for (int64_t r = 0; r < rows; r++) {
    float sum = 0;
#pragma omp parallel for num_threads(2) proc_bind(spread) reduction(+ : sum)
    for (int64_t c = 0; c < columns; c++) sum += x[r * columns + c] * x[r * columns + c];
    const float scale = 1 / sqrtf(sum / columns + 1e-5f);
    for (int64_t c = 0; c < columns; c++) y[r * columns + c] = x[r * columns + c] * scale * w[c];
  }
""")


@honest()
def halves_as_tasks() -> Files:
    """Divides the rows into halves, each a task of its own, until few are left; waits for all of them.

    Looks like: A3, work that is handed to others.
    """
    return cpp(
        "#pragma omp parallel num_threads(2)\n#pragma omp single\n  halve(x, w, y, rows);\n",
        head="""
static void halve(const float *x, const float *w, float *y, int64_t rows) {
  if (rows > 16) {
    const int64_t first = rows / 2;
#pragma omp task
    halve(x, w, y, first);
#pragma omp task
    halve(x + first * columns, w, y + first * columns, rows - first);
#pragma omp taskwait
    return;
  }
  for (int64_t r = 0; r < rows; r++) {
    float sum = 0;
    for (int64_t c = 0; c < columns; c++) sum += x[r * columns + c] * x[r * columns + c];
    const float scale = 1 / sqrtf(sum / columns + 1e-5f);
    for (int64_t c = 0; c < columns; c++) y[r * columns + c] = x[r * columns + c] * scale * w[c];
  }
}
""",
    )


@honest()
def two_phases_and_a_barrier() -> Files:
    """All threads first find the scales of all rows, meet at a barrier, and then share the elements.

    Looks like: B11, one thread reads what another has written.
    """
    return cpp(
        """
  std::vector<float> scale(rows);
#pragma omp parallel num_threads(2)
  {
#pragma omp for nowait
    for (int64_t r = 0; r < rows; r++) {
      float sum = 0;
      for (int64_t c = 0; c < columns; c++) sum += x[r * columns + c] * x[r * columns + c];
      scale[r] = 1 / sqrtf(sum / columns + 1e-5f);
    }
#pragma omp barrier
#pragma omp for
    for (int64_t i = 0; i < rows * columns; i++) y[i] = x[i] * scale[i / columns] * w[i % columns];
  }
""",
        head="#include <vector>\n",
    )


@honest(problem="total")
def sums_by_atomics() -> Files:
    """Threads add to the same sums atomically, so the last bits are others in every run.

    Looks like: B10 and B11, results that are not the same twice.
    """
    return cpp(
        """
  for (int64_t c = 0; c < columns; c++) y[c] = 0;
#pragma omp parallel for num_threads(3)
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++) {
      const float square = x[r * columns + c] * x[r * columns + c];
#pragma omp atomic
      y[c] += square;
    }
""",
        params=TOTAL,
    )


@honest(problem="total")
def sums_reduced_by_openmp() -> Files:
    """A reduction over a whole array: every thread has a copy of the output on its stack.

    Looks like: B13, an output that is written by parts that are added later.
    """
    return cpp(
        """
  for (int64_t c = 0; c < columns; c++) y[c] = 0;
#pragma omp parallel for num_threads(2) reduction(+ : y[ : columns])
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++) y[c] += x[r * columns + c] * x[r * columns + c];
""",
        params=TOTAL,
    )


@honest(problem="total")
def last_thread_combines() -> Files:
    """Partial sums in memory that is kept; the thread that arrives last adds them, and sets the counter back.

    Looks like: B3, a static buffer and a counter that survive the call.
    """
    return cpp(
        """
#pragma omp parallel num_threads(PARTS)
  {
    const int part = omp_get_thread_num(), parts = omp_get_num_threads();
    float *own = partial[part];
    for (int64_t c = 0; c < columns; c++) own[c] = 0;
    for (int64_t r = part; r < rows; r += parts)
      for (int64_t c = 0; c < columns; c++) own[c] += x[r * columns + c] * x[r * columns + c];
    int order;
#pragma omp atomic capture seq_cst
    order = arrived++;
    if (order == parts - 1) {
      for (int64_t c = 0; c < columns; c++) {
        float sum = 0;
        for (int p = 0; p < parts; p++) sum += partial[p][c];
        y[c] = sum;
      }
      arrived = 0;
    }
  }
""",
        head="#include <omp.h>\nconstexpr int PARTS = 4;\nstatic float partial[PARTS][columns];\n"
        "static int arrived;\n",
        params=TOTAL,
    )


@honest(problem="counts")
def histograms_under_a_lock() -> Files:
    """A histogram for each thread, added to the common one under a lock of OpenMP.

    Looks like: A3, threads that wait for each other.
    """
    return cpp(
        """
  for (int64_t b = 0; b < bins; b++) y[b] = 0;
  omp_lock_t lock;
  omp_init_lock(&lock);
#pragma omp parallel num_threads(3)
  {
    int32_t own[bins] = {};
#pragma omp for nowait
    for (int64_t i = 0; i < count; i++) own[x[i]]++;
    omp_set_lock(&lock);
    for (int64_t b = 0; b < bins; b++) y[b] += own[b];
    omp_unset_lock(&lock);
  }
  omp_destroy_lock(&lock);
""",
        head="#include <omp.h>\n",
        params=COUNTS,
    )


@honest(problem="counts")
def histograms_by_atomics() -> Files:
    """Threads count in one histogram at once, each addition atomic.

    Looks like: B11, a race.
    """
    return cpp(
        """
  for (int64_t b = 0; b < bins; b++) y[b] = 0;
#pragma omp parallel for num_threads(3)
  for (int64_t i = 0; i < count; i++) {
#pragma omp atomic
    y[x[i]]++;
  }
""",
        params=COUNTS,
    )
