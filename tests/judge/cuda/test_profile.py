"""What Nsight Compute prints is read, and what keeps it from working is told in one line."""

from __future__ import annotations

from swarm.judge.cuda import profile

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
    '"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type",'
    '"Rule Description","Estimated Speedup Type","Estimated Speedup"'
)


def line(number: int, kernel: str, *cells: str) -> str:
    start = (str(number), "7", "python3.12", "127.0.0.1", kernel, "1", "13", "(256, 1, 1)", "(391, 1, 1)")
    words = [*start, "0", "9.0", *cells]
    return ",".join(f'"{word}"' for word in [*words, *[""] * (20 - len(words))])


REPORT = [
    "==PROF== Connected to process 7 (/usr/bin/python3.12)",
    '==PROF== Profiling "twice" - 0: 0%....50%....100% - 9 passes',
    "==PROF== Disconnected from process 7",
    HEAD,
    line(0, "twice", "GPU Speed Of Light Throughput", "Duration", "ns", "2,496"),
    line(0, "twice", "GPU Speed Of Light Throughput", "DRAM Throughput", "%", "37.42"),
    line(
        0, "twice", "GPU Speed Of Light Throughput", "", "", "", "SOLBottleneck", "OPT", "Too small a grid."
    ),
    line(1, "void add<8>(float *, int)", "Occupancy", "Theoretical Occupancy", "%", "100"),
]


def test_metrics_and_advice_belong_to_their_kernel() -> None:
    first, second = profile.read(REPORT)
    assert (first.kernel, first.grid, first.block) == ("twice", "(391, 1, 1)", "(256, 1, 1)")
    assert [(one.name, one.value, one.unit) for one in first.metrics] == [
        ("Duration", "2,496", "ns"),
        ("DRAM Throughput", "37.42", "%"),
    ]
    assert first.advice == ("Too small a grid.",)
    assert (second.kernel, second.advice) == ("void add<8>(float *, int)", ())
    assert profile.read([]) == profile.read(REPORT[:3]) == []


def test_a_driver_that_keeps_its_counters_to_root_is_named() -> None:
    said = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU ..."
    assert "to the administrator only" in profile._reason("exit code 1", said, "")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in profile._remedy(said)


def test_what_ncu_says_is_passed_on() -> None:
    said = "==PROF== Connected\n==ERROR== The application returned an error code (1).\n"
    reason = profile._reason("exit code 1", said, "KeyError: 'x'")
    assert reason == "ncu saw no kernel (exit code 1): The application returned an error code (1)."
    assert (
        profile._reason("exit code 1", "", "a\nKeyError: 'x'\n")
        == "ncu saw no kernel (exit code 1): KeyError: 'x'"
    )
    assert "did not end within 300 s" in profile._reason(profile.TIMED_OUT, "", "")
