"""What takes seconds to compile, once for all tests of recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.judge.cuda.replay import fake


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shim is, once it was built."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> fake.Fake:
    return fake.build(tmp_path_factory.mktemp("fake"), cache)
