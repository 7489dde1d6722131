"""A judge of this machine's first GPU, for all tests that are marked `gpu`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from swarm.cli.devices import chosen_devices
from swarm.device import Device
from swarm.judge import peaks
from swarm.judge.judge import Judge


@pytest.fixture(scope="session")
def device() -> Device:
    return chosen_devices("cuda")[0]


@pytest.fixture(scope="session")
def judge(device: Device, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Share one warm judge, as a pool would: what a test leaves behind would show in the next."""
    folder = tmp_path_factory.mktemp("judge")
    with Judge(
        device, folder / "cache", peaks.load(folder / "peaks.json", device, folder / "cache")
    ) as judge:
        judge.warm_up()
        yield judge
