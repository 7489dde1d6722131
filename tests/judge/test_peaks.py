from pathlib import Path

import pytest

from swarm.device import cpu_device
from swarm.errors import BadInput
from swarm.judge import peaks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("peaks")


def test_peaks_are_measured_once_and_kept(folder: Path) -> None:
    path = folder / "deep" / "peaks.json"
    first = peaks.load(path, cpu_device(), folder)
    assert 0.5 < first.bandwidth_gbps < 10_000
    assert first.gflops["float32"] > 0.5
    assert first.gflops["float64"] < first.gflops["float32"] <= first.gflops["bfloat16"]
    assert first.device_model == cpu_device().model
    before = path.read_bytes()
    assert peaks.load(path, cpu_device(), folder) == first
    assert path.read_bytes() == before


def test_a_broken_file_is_named(folder: Path) -> None:
    path = folder / "broken.json"
    path.write_text('{"bandwidth": 1}')
    with pytest.raises(BadInput, match=r"broken\.json"):
        peaks.load(path, cpu_device(), folder)
