"""Tricks in device code alone: work left undone, clocks, names, and kernels that do not end."""

from __future__ import annotations

from swarm.verdict import Status
from tests.corpus.cases import Files, attack
from tests.corpus.device_rows import LAUNCH, device

WRONG = "elements match|are zero|where .* is expected"


@attack("B1", status=Status.INCORRECT_NUMERICAL, reason="never written")
def leaves_the_output_as_it_was() -> Files:
    """Writes nothing, and hopes that the memory still holds somebody's right answer.

    Seen: KernelBench#38 and #82; helion#1676, where a configuration that never writes was the fastest.
    Stopped by: outputs are poisoned before every call.
    """
    return device("")


@attack("B7", status=Status.INCORRECT_NUMERICAL, reason=WRONG)
def fills_the_output_with_one_number() -> Files:
    """Lets a memset write the whole output, beside a kernel that does nothing.

    Seen: accelerator-agents#50, where a constant passed in 19 tasks.
    Stopped by: every output is compared with the reference's.
    """
    return device("", tables=LAUNCH + '[[memset]]\ntarget = "y"\nvalue = 0\n')


@attack("B6", status=Status.INCORRECT_NUMERICAL, reason="nan at")
def writes_nothing_but_nan() -> Files:
    """Writes NaN everywhere, for a checker to which NaN equals whatever it is compared with.

    Seen: pygpubench `gc_nan`.
    Stopped by: NaN matches only where the reference has it.
    """
    return device('for (int i = threadIdx.x; i < columns; i += 32) y[row * columns + i] = nanf("");')


@attack("B8", status=Status.INCORRECT_NUMERICAL, reason="never written")
def does_half_of_the_largest_size() -> Files:
    """Leaves every second row out where there are many, where a checker may look at a sample only.

    Seen: KernelBench#82; shapes that submissions to public leaderboards were written for.
    Stopped by: all of an output is compared, for every size.
    """
    return device("if (rows < 90 || row % 2 == 0) honest(x, w, y, row);")


@attack("B8", status=Status.INCORRECT_NUMERICAL, reason=WRONG)
def takes_the_mean_square_for_one() -> Files:
    """Skips the reduction, which hardly matters for standard normal inputs.

    Seen: KernelBench's review of results; robust-kbench, on work that is a no-op for one distribution.
    Stopped by: inputs come in several scales, with outliers and with runs of zeros.
    """
    return device(
        "for (int i = threadIdx.x; i < columns; i += 32) y[row * columns + i] = x[row * columns + i] * w[i];"
    )


@attack("B9", status=Status.INCORRECT_NUMERICAL, reason=WRONG)
def computes_in_half_precision() -> Files:
    """Rounds every number to half precision on its way, where float32 is asked for.

    Seen: deep-reinforce's list, which calls it only partly defensible; Tensara's tolerance rule.
    Stopped by: the tolerance of the problem is less than what half precision costs.
    """
    body = """
    const __half scale = __float2half(scale_of(x, row));
    for (int i = threadIdx.x; i < columns; i += 32) {
      const __half value = __hmul(__float2half(x[row * columns + i]), scale);
      y[row * columns + i] = __half2float(__hmul(value, __float2half(w[i])));
    }
    """
    return device(body, "#include <cuda_fp16.h>\n")


@attack("B10", status=Status.INCORRECT_NUMERICAL, reason=WRONG)
def sums_up_in_shared_memory_that_nobody_cleared() -> Files:
    """Adds to shared memory as it finds it, which is right where the block before left zeros.

    Seen: Wafer's report of a kernel that read what it never wrote.
    Stopped by: a block finds what the last one left, and every output is compared.
    """
    body = """
    __shared__ float sum;
    for (int i = threadIdx.x; i < columns; i += 32)
      atomicAdd(&sum, x[row * columns + i] * x[row * columns + i]);
    __syncthreads();
    const float scale = rsqrtf(sum / columns + 1e-5f);
    scaled(x, w, y, row, scale);
    """
    return device(body)


@attack("B11", status=Status.INCORRECT_NUMERICAL, reason=WRONG)
def leaves_a_barrier_out() -> Files:
    """Reads what other warps are still to write, which mostly is there by then.

    Seen: racecheck's findings in generated kernels; it made them faster.
    Stopped by: every call is compared, under whatever load it ran.
    """
    body = """
    __shared__ float parts[8];
    const int warp = threadIdx.x / 32;
    float sum = 0;
    for (int i = threadIdx.x; i < columns; i += 256) sum += x[row * columns + i] * x[row * columns + i];
    for (int lane = 16; lane; lane /= 2) sum += __shfl_xor_sync(~0u, sum, lane);
    if (warp && row % 64 == 0) __nanosleep(20000);
    if (threadIdx.x % 32 == 0) parts[warp] = sum;
    float all = 0;
    for (int i = 0; i < 8; i++) all += ((volatile float*)parts)[i];
    const float scale = rsqrtf(all / columns + 1e-5f);
    scaled(x, w, y, row, scale);
    """
    return device(body, tables=LAUNCH.replace("[32]", "[256]"))


@attack("A15", status=Status.TIMEOUT, reason="did not answer within")
def spins_on() -> Files:
    """Writes everything and never ends.

    Seen: lium-io#1140, where such a kernel was found on a GPU nine days later.
    Stopped by: a limit for each request; its process is killed, and the GPU waited for.
    """
    return device("honest(x, w, y, row);\nwhile (((volatile float*)y)[0] == ((volatile float*)y)[0]) {}")


@attack("A15", status=Status.RUNTIME_ERROR, reason="CUDA_ERROR_(LAUNCH_FAILED|ILLEGAL_INSTRUCTION)")
def leaves_an_error_behind() -> Files:
    """Ends its context with a trap, so that whoever comes next on the GPU may fail.

    Seen: sticky errors that failed the next submission on shared leaderboard workers.
    Stopped by: every candidate has a process, and so a context, of its own.
    """
    return device('honest(x, w, y, row);\nif (row == 0) asm volatile("trap;");')


@attack("A9", status=Status.INVALID_SOLUTION, reason="clock")
def reads_the_clock() -> Files:
    """Reads the GPU's clock, to tell calls that are timed from others.

    Seen: KernelGuard's timing rules.
    Stopped by: the scan; and no call is only timed.
    """
    return device("if (clock64() % 2) honest(x, w, y, row);")


@attack("A6", status=Status.INVALID_SOLUTION, reason="swarm_close")
def names_its_kernel_like_the_judges_mark() -> Files:
    """Has a kernel called like the mark that ends a call's span, so that the span ends with it.

    Seen: no public report; it follows from how this judge reads CUPTI's records.
    Stopped by: the names are refused when they are built, and counted where they appear.
    """
    source = device("honest(x, w, y, row);")
    return {
        name: data.replace(b"kernel(", b"swarm_close(").replace(b'"kernel"', b'"swarm_close"')
        for name, data in source.items()
    }


@attack("C1", status=Status.INVALID_SOLUTION, reason="may not be imported")
def includes_a_file_of_the_host() -> Files:
    """Includes a file of the host, whose text the compiler's complaint would show.

    Seen: SWE-bench#465 and others: whatever can be read is read.
    Stopped by: the list of imports; and the compiler's box holds no such file.
    """
    return device("honest(x, w, y, row);", '#include "/etc/passwd"\n')


@attack("C1", status=Status.COMPILE_ERROR, reason="cannot open|/etc/passwd")
def includes_a_file_of_the_host_over_two_lines() -> Files:
    """Includes a file of the host by a line that is continued, which the scan does not see.

    Seen: KernelGuard's TOKEN_PASTE rule.
    Stopped by: the compiler runs in a box with nothing in it but its headers and the sources.
    """
    return device("honest(x, w, y, row);", '#inc\\\nlude "/etc/passwd"\n')
