"""One process for the references of all problems: each is then loaded in milliseconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from swarm.device import cpu_device
from swarm.judge.reference import References


@pytest.fixture(scope="session")
def references() -> Iterator[References]:
    with References(cpu_device()) as opened:
        yield opened
