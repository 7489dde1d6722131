"""Hides the GPUs of this host from all tests that are not about them; keeps tests that measure by themselves.

With `-n 2` all tests that measure on the CPU run in one worker, one after the other; those that do not are
for the other, on the cores that nobody measures, and give way. Those of the problems that ship stay together,
for they share one process of references.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from swarm.device import other_cores

VISIBLE = "CUDA_VISIBLE_DEVICES"
_before = os.environ.get(VISIBLE)
HERE = Path(__file__).parent
MEASURING = (
    "attacks",
    "extract",
    "flow",
    "honest",
    "importers",
    "judge",
    "test_bad_problems.py",
    "test_baseline.py",
    "test_benchmarks.py",
    "test_cli.py",
    "test_cli_baseline.py",
    "test_cli_sol.py",
    "test_local_devices.py",
    "test_local_pool.py",
    "test_readme.py",
)
NOT_MEASURING = ("judge/cuda", "judge/test_boxed.py", "judge/test_flops.py", "judge/test_lint.py")
SUITE = "suite/"
NICENESS = 10
settings.register_profile(
    "patient", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")  # how long an example takes is the machine's business


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Put all tests that measure into one worker, those of the suite into another; the rest go anywhere."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            name = nodeid.removeprefix("tests/")
            if name.startswith(SUITE):
                return SUITE
            return "device" if _measures(name) else nodeid

    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest: the tests that measure, beside them those of the suite."""
    items.sort(key=lambda item: (not _measures(_name(item)), not _name(item).startswith(SUITE)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the commands under test find a machine without a GPU, wherever they run."""
    if item.get_closest_marker("gpu") is None:
        os.environ[VISIBLE] = ""
    elif _before is None:
        os.environ.pop(VISIBLE, None)
    else:
        os.environ[VISIBLE] = _before
    if "PYTEST_XDIST_WORKER" in os.environ and not _measures(_name(item)) and os.nice(0) < NICENESS:
        os.sched_setaffinity(0, other_cores())
        os.nice(NICENESS)


def _name(item: pytest.Item) -> str:
    return item.path.relative_to(HERE).as_posix()


def _measures(name: str) -> bool:
    return name.startswith(MEASURING) and not name.startswith(NOT_MEASURING)
