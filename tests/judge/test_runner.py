"""Candidates that behave: they are called on every slot, and the results are in the judge's memory."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from swarm.judge.runner import Slot
from swarm.languages.protocol import Failure
from swarm.verdict import Status
from tests.judge.bench import COLUMNS, KERNEL, ROWS, bench, cpp, pytorch

DESTINATION = "import torch\ndef run(x, scale, shift, negate, y):\n    torch.add(x * -scale, -shift, out=y)\n"


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_cpp_fills_every_slot_and_claims_a_time_for_each(cache: Path) -> None:
    with bench(cpp(KERNEL, cache), cache) as it:
        for _ in range(3):
            claims = it.call()
            assert isinstance(claims, list), claims
            assert len(claims) == len(it.slots)
            assert 0 < sum(claims) <= it.runner.wall_ns
            assert it.is_right


def test_pytorch_writes_into_the_outputs_it_is_given(cache: Path) -> None:
    with bench(pytorch(DESTINATION, cache), cache) as it:
        assert isinstance(it.call(), list)
        assert it.is_right


def test_what_python_compiles_at_its_first_call_may_take_longer_than_a_call(cache: Path) -> None:
    slow = f"import time\n{DESTINATION}    time.sleep(0.4)\n"
    with bench(pytorch(slow, cache), cache, timeout_s=1.0) as it:
        assert isinstance(it.call(), list)
        assert it.is_right
        again = it.call()
    assert isinstance(again, Failure)
    assert (again.status, again.reason) == (Status.TIMEOUT, "did not answer within 1 s")


def test_a_runner_is_stopped_between_calls(cache: Path) -> None:
    with bench(cpp(KERNEL, cache), cache) as it:
        it.call()
        assert it.runner.pid is not None
        deadline = time.monotonic() + 5
        while _state(it.runner.pid) != "T":
            assert time.monotonic() < deadline
        it.call()
        assert it.is_right


def test_nothing_of_a_closed_runner_remains(cache: Path) -> None:
    with bench(cpp(KERNEL, cache), cache) as it:
        it.call()
        pid = it.runner.pid
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_slots_without_any_are_refused(cache: Path) -> None:
    with bench(cpp(KERNEL, cache), cache) as it, pytest.raises(ValueError, match="0 slots"):
        it.runner.call(list[Slot]())


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_no_page_of_the_arena_is_missing_in_a_call(cache: Path) -> None:
    with bench(cpp(KERNEL, cache), cache) as it:
        it.runner.ready()
        assert it.runner.pid is not None
        before = _page_faults(it.runner.pid)
        it.call()
        pages = len(it.slots) * 2 * ROWS * COLUMNS * 4 // 4096
        assert _page_faults(it.runner.pid) - before < pages / 2


def test_runners_leave_no_descriptor_behind(cache: Path) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    counts = []
    for _ in range(4):
        with bench(cpp(KERNEL, cache), cache) as it:
            it.call()
        counts.append(descriptors())
    assert counts[-1] == counts[0]


def _page_faults(pid: int) -> int:
    """Minor faults of a process so far."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])
