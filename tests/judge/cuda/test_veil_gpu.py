"""The veil on a real GPU: it costs a call nothing, hides what it must, and no cache hint outlives it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import pytest

from swarm.judge.cuda.devices import cuda_devices
from swarm.languages.protocol import Failure
from tests.judge.cuda.gpu_bench import BYTES, KERNEL, SLOTS, GpuBench, gpu_bench, plan

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

REQUESTS = 40
NOISE_NS = 200
AHEAD = f"""
  const char* next = (const char*)x + {2 * BYTES} + 128 * (long long)i;
  if (128 * i < {BYTES}) asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(next));
"""
"""Asks the L2 to keep the input of the slot after this one, whose place is known here."""
ALL = f"""
  if (i < n && isnan(y[i]))
    for (int at = i; at < {SLOTS * 2 * BYTES // 4}; at += {2 * BYTES // 4}) y[at] = x[at] * scale;
"""
"""Does the work of all slots from the first one on, and nothing where that was done."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuBench]:
    with gpu_bench(cuda_devices()[0], tmp_path_factory.mktemp("cache")) as made:
        yield made


def claims(bench: GpuBench, source: str, count: int = SLOTS) -> list[list[int]]:
    """Return what each of many requests claims, by its slots."""
    with bench.runner(plan(source)) as runner:
        bench.called(runner, 0, count)
        found = [bench.called(runner, 0, count) for _ in range(REQUESTS)]
        assert runner.clock == "CUPTI"
        return found


def with_(text: str) -> str:
    """Return the kernel that does this, too, before it waits."""
    head, tail = KERNEL.split("  while (now() - begun", 1)
    return f"{head}{text}  while (now() - begun{tail}"


def test_a_call_takes_as_long_alone_as_among_others(bench: GpuBench) -> None:
    alone = statistics.median(ns for [ns] in claims(bench, KERNEL, 1))
    among = statistics.median(ns for request in claims(bench, KERNEL) for ns in request[1:])
    assert abs(alone - among) < NOISE_NS, (alone, among)


def test_lines_that_a_call_asked_the_cache_to_keep_make_the_next_no_faster(bench: GpuBench) -> None:
    honest = statistics.median(ns for request in claims(bench, KERNEL) for ns in request[1:])
    ahead = statistics.median(ns for request in claims(bench, with_(AHEAD)) for ns in request[1:])
    assert ahead > honest - NOISE_NS, (honest, ahead)


def test_work_for_later_slots_is_done_with_inputs_that_are_not_there(bench: GpuBench) -> None:
    source = KERNEL.replace("  if (i < n) y[i] = x[i] * scale;\n", ALL)
    assert source != KERNEL
    with bench.runner(plan(source)) as runner:
        bench.called(runner, 0, 1)
        slots = bench.fill(0)
        assert not isinstance(runner.call(slots), Failure)
        assert bench.is_right(slots[:1])
        assert not any(bench.is_right([slot]) for slot in slots[1:])
