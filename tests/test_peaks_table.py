"""Published peaks: they agree with what the chips are made of, and are found by NVML's names."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.definition import DType
from swarm.errors import BadInput
from swarm.peaks_table import BY_MODEL, TABLE, Published, model_of, peaks_of_model, published

FILE = Path("results/baselines/x/peaks.json")
MULTIPLY_ADDS = {  # per clock and multiprocessor, dense, float16 in tensor cores
    "sm_80": 1024,
    "sm_89": 512,
    "sm_90a": 2048,
    "sm_100a": 4096,
}


@pytest.mark.parametrize(
    ("nvml", "model"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
        ("NVIDIA H100 PCIe", "nvidia-h100-pcie"),
        ("NVIDIA H100 NVL", "nvidia-h100-nvl"),
        ("NVIDIA B200", "nvidia-b200"),
        ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
        ("NVIDIA A100-SXM4-40GB", "nvidia-a100-sxm4-40gb"),
        ("NVIDIA A100 80GB PCIe", "nvidia-a100-80gb-pcie"),
        ("NVIDIA A100-PCIE-40GB", "nvidia-a100-pcie-40gb"),
        ("NVIDIA L40S", "nvidia-l40s"),
        ("NVIDIA GeForce RTX 4090", "nvidia-geforce-rtx-4090"),
    ],
)
def test_a_gpu_is_found_by_the_name_its_driver_reports(nvml: str, model: str) -> None:
    assert model_of(nvml) == model
    assert published(model) is not None
    assert peaks_of_model(model, FILE).device_model == model


def test_no_model_is_there_twice() -> None:
    models = [model for entry in TABLE for model in entry.models]
    assert len(models) == len(set(models)) == len(BY_MODEL)


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.names[0])
def test_the_figures_of_an_entry_agree_with_each_other(entry: Published) -> None:
    flops_per_clock = 2 * MULTIPLY_ADDS[entry.arch] * entry.multiprocessors
    stated = flops_per_clock * entry.rated_mhz * 1e6 / 1e12
    rates = entry.tflops
    assert stated == pytest.approx(rates["fp16"], rel=0.015)
    assert rates["fp16"] == pytest.approx(rates["int8"] / 2, rel=0.015), "dense, not sparse"
    assert rates["fp16"] in (rates["bf16"], pytest.approx(2 * rates["bf16"], rel=0.01))
    assert rates.get("fp8", rates["int8"]) == rates["int8"]
    assert rates["fp32"] <= rates["tf32"]
    lanes = 64 if entry.arch == "sm_80" else 128
    fp32 = 2 * lanes * entry.multiprocessors * entry.max_mhz / 1e6
    assert rates["fp32"] == pytest.approx(fp32, rel=0.25)
    assert entry.rated_mhz <= entry.max_mhz
    assert entry.source


@pytest.mark.parametrize("model", BY_MODEL)
def test_every_dtype_that_can_be_multiplied_has_a_peak_and_no_ceiling_is_below_it(model: str) -> None:
    peaks = peaks_of_model(model, FILE)
    wanted = {d for d in DType if d.is_float} | {DType.INT8}
    assert set(peaks.gflops) == set(peaks.ceiling_gflops) == {d.value for d in wanted}
    assert all(peaks.ceiling_gflops[name] >= rate for name, rate in peaks.gflops.items())


def test_float32_counts_as_tf32_and_narrow_types_take_the_path_there_is() -> None:
    h200, a100 = peaks_of_model("nvidia-h200", FILE), peaks_of_model("nvidia-a100-sxm4-80gb", FILE)
    b200 = peaks_of_model("nvidia-b200", FILE)
    assert h200.gflops["float32"] == 494_700
    assert h200.gflops["float64"] == 66_900
    assert h200.gflops["float4_e2m1fn_x2"] == h200.gflops["float8_e4m3fn"] == 1_978_900
    assert b200.gflops["float4_e2m1"] == 2 * b200.gflops["float8_e5m2"] == 9_000_000
    assert a100.gflops["float8_e4m3fn"] == a100.gflops["float16"] == 312_000
    assert a100.gflops["float4_e2m1"] == a100.gflops["int8"] == 624_000


def test_the_ceiling_allows_for_the_highest_clock_and_for_float16() -> None:
    h200 = peaks_of_model("nvidia-h200", FILE)
    assert h200.ceiling_gflops["bfloat16"] == pytest.approx(989_400 * 1980 / 1830)
    assert h200.ceiling_gflops["float32"] == h200.ceiling_gflops["float16"]
    assert h200.ceiling_gflops["float8_e4m3fn"] == pytest.approx(1_978_900 * 1980 / 1830)
    assert peaks_of_model("nvidia-geforce-rtx-4090", FILE).ceiling_gflops["bfloat16"] > 330_000


def test_an_unknown_gpu_is_one_line_that_says_how_to_add_it() -> None:
    with pytest.raises(BadInput) as caught:
        peaks_of_model("nvidia-h200-mig-1g-18gb", FILE)
    line = str(caught.value)
    assert line.startswith(f"{FILE}: no peaks are known for the GPU 'nvidia-h200-mig-1g-18gb'; ")
    assert "write this file from its data sheet" in line and '"bandwidth_gbps"' in line
    with pytest.raises(BadInput, match="did you mean 'nvidia-h200'"):
        peaks_of_model("h200", FILE)
