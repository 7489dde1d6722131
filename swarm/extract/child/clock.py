"""Time a call on the device it runs on."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

WARM_CALLS, LEAST_CALLS, MOST_CALLS, TIMED_S = 2, 5, 200, 0.1
SLEEP_CYCLES = 2_000_000
"""About a millisecond, in which launches queue up behind the first event."""


def measure_us(call: Callable[[], Any], device: torch.device) -> float:
    """Return the microseconds of one call: the median of some."""
    for _ in range(WARM_CALLS):
        call()
    once = _on_gpu if device.type == "cuda" else _on_cpu
    taken: list[float] = []
    begun = time.perf_counter()
    while len(taken) < LEAST_CALLS or (time.perf_counter() - begun < TIMED_S and len(taken) < MOST_CALLS):
        taken.append(once(call))
    return statistics.median(taken)


def _on_cpu(call: Callable[[], Any]) -> float:
    begun_ns = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - begun_ns) / 1e3


def _on_gpu(call: Callable[[], Any]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    torch.cuda._sleep(SLEEP_CYCLES)  # type: ignore[no-untyped-call]
    begin.record()
    call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3
