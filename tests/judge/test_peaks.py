import json
from pathlib import Path

import pytest

from swarm.device import Device, cpu_device
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


GPU = Device("cuda", "nvidia-h200", "GPU-1", ())
WRITTEN = {
    "device_model": "nvidia-rtx-x",
    "bandwidth_gbps": 1000,
    "gflops": {"float32": 80e3},
    "source": "data sheet",
}


def test_the_peaks_of_a_gpu_are_published_and_written_nowhere(folder: Path) -> None:
    path = folder / "gpu" / "peaks.json"
    assert peaks.load(path, GPU, folder).gflops["bfloat16"] == 989_400
    assert not path.exists()
    again = peaks.from_json(peaks.to_json(peaks.load(path, GPU, folder)))
    assert again == peaks.load(path, GPU, folder)


def test_a_gpu_is_added_by_a_file_that_somebody_writes(folder: Path) -> None:
    path = folder / "written.json"
    device = Device("cuda", "nvidia-rtx-x", "GPU-2", ())
    with pytest.raises(BadInput, match=r"written\.json: no peaks are known for the GPU 'nvidia-rtx-x'"):
        peaks.load(path, device, folder)
    path.write_text(json.dumps(WRITTEN))
    found = peaks.load(path, device, folder)
    assert (found.bandwidth_gbps, found.gflops, found.cache_bytes) == (1000, {"float32": 80e3}, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bandwidth_gbps": "1 TB/s"}, r"bandwidth_gbps: '1 TB/s' is not allowed; it must be a valid number"),
        ({"bandwidth_gbps": 0}, "bandwidth_gbps: 0 is not allowed; it must be greater than 0"),
        ({"gflops": {"bf16": 1}}, "gflops.bf16: dtype 'bf16' is unknown; did you mean 'bfloat16'"),
        ({"gflops": [1]}, "gflops: .* is not allowed; it must be an object"),
        ({"tflops": {}}, "tflops: unknown field; did you mean 'gflops'"),
        ({"source": ""}, "source: '' is not allowed"),
    ],
)
def test_what_is_wrong_in_a_written_file_is_named(
    folder: Path, change: dict[str, object], message: str
) -> None:
    path = folder / "wrong.json"
    path.write_text(json.dumps({**WRITTEN, **change}))
    with pytest.raises(BadInput, match=message):
        peaks.load(path, GPU, folder)
