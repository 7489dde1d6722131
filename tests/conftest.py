"""Hides the GPUs of this host from every test that is not about them."""

from __future__ import annotations

import os

import pytest

VISIBLE = "CUDA_VISIBLE_DEVICES"
_before = os.environ.get(VISIBLE)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the commands under test find a machine without a GPU, wherever they run."""
    if item.get_closest_marker("gpu") is None:
        os.environ[VISIBLE] = ""
    elif _before is None:
        os.environ.pop(VISIBLE, None)
    else:
        os.environ[VISIBLE] = _before
