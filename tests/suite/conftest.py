"""One process for all references of a module, each loaded in milliseconds; torch has one thread here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from swarm.device import cpu_device
from swarm.judge.reference import References

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def references() -> Iterator[References]:
    with References(cpu_device()) as opened:
        yield opened
