"""T_SOL on GPUs: the figures used beside measurements on an H200, and what may honestly be below."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from swarm.judge.flops import count_flops
from swarm.judge.limit import Limit, limit_of
from swarm.judge.reference import input_specs
from swarm.peaks_table import peaks_of_model
from swarm.problem import Problem, problem_from_files
from swarm.sol import Peaks

FILE = Path("peaks.json")
H200 = peaks_of_model("nvidia-h200", FILE)
B200 = peaks_of_model("nvidia-b200", FILE)
LINEAR = "def run(x, w):\n    return x @ w.T\n"


def problem(
    inputs: dict[str, Any], outputs: dict[str, Any], reference: str, sizes: dict[str, int], settings: str = ""
) -> Problem:
    def tensor(given: Any) -> dict[str, Any]:
        dtype, *shape = given.split()
        return {"dtype": dtype, "shape": shape}

    definition = {
        "name": "one",
        "axes": {name: {"type": "var"} for name in sizes},
        "inputs": {name: tensor(given) for name, given in inputs.items()},
        "outputs": {name: tensor(given) for name, given in outputs.items()},
        "reference": reference,
    }
    workload = {"uuid": "w", "axes": sizes, "inputs": {name: {"type": "random"} for name in inputs}}
    files = {
        "definition.json": json.dumps(definition).encode(),
        "workload.jsonl": json.dumps(workload).encode(),
        "problem.toml": settings.encode(),
    }
    return problem_from_files(files, "one")


def limit(one: Problem, peaks: Peaks) -> Limit:
    names: dict[str, Any] = {"torch": torch}
    exec(one.reference, names)
    [workload] = one.workloads
    return limit_of(
        one,
        workload,
        peaks,
        lambda: sum(count_flops(names["run"], input_specs(one.definition, workload)).values()),
    )


def linear(m: int, n: int, k: int, dtype: str = "bfloat16") -> Problem:
    return problem(
        {"x": f"{dtype} M K", "w": f"{dtype} N K"},
        {"y": f"{dtype} M N"},
        LINEAR,
        {"M": m, "N": n, "K": k},
    )


@pytest.mark.parametrize(
    ("m", "n", "k", "t_sol_us"),
    [
        (1, 4096, 4096, 7.0),
        (64, 4096, 4096, 7.2),
        (256, 4096, 4096, 8.7),
        (1024, 4096, 4096, 34.7),
        (8192, 4096, 4096, 277.9),
        (1, 28672, 4096, 48.9),
        (256, 28672, 4096, 60.8),
        (8192, 28672, 4096, 1945.5),
        (16, 4096, 14336, 24.6),
        (8192, 4096, 14336, 972.8),
    ],
)
def test_linear_layers_have_the_limit_that_was_used_beside_cublas(
    m: int, n: int, k: int, t_sol_us: float
) -> None:
    found = limit(linear(m, n, k), H200)
    assert found.flops == 2.0 * m * n * k
    assert found.t_sol_us == pytest.approx(t_sol_us, rel=1e-3, abs=0.06)


@pytest.mark.parametrize(("rows", "t_sol_us"), [(64, 0.33), (2048, 10.49), (16384, 83.89)])
def test_an_addition_with_rms_norm_is_bound_by_its_bytes(rows: int, t_sol_us: float) -> None:
    """That figure counts three tensors: x, the residual and one output; the weight is small."""
    one = problem(
        {"x": "bfloat16 R H", "residual": "bfloat16 R H", "weight": "bfloat16 H"},
        {"y": "bfloat16 R H"},
        "def run(x, residual, weight):\n"
        "    s = (x + residual).float()\n"
        "    return (s * torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + 1e-5) * weight).to(x.dtype)\n",
        {"R": rows, "H": 4096},
    )
    assert limit(one, H200).t_sol_us == pytest.approx(t_sol_us, rel=1e-3, abs=0.02)


def test_swiglu_is_bound_by_its_bytes() -> None:
    one = problem(
        {"gate": "bfloat16 R H", "up": "bfloat16 R H"},
        {"y": "bfloat16 R H"},
        "def run(gate, up):\n    return torch.nn.functional.silu(gate) * up\n",
        {"R": 8192, "H": 14336},
    )
    assert limit(one, H200).t_sol_us == pytest.approx(146.8, rel=1e-3)


PREFILL = """
def run(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
"""


@pytest.mark.parametrize(("s", "t_sol_us"), [(512, 2.2), (2048, 34.7), (4096, 139.0), (8192, 555.9)])
def test_causal_attention_counts_half_the_square_if_the_problem_says_so(s: int, t_sol_us: float) -> None:
    def prefill(settings: str) -> Problem:
        return problem(
            {"q": "bfloat16 1 32 S 128", "k": "bfloat16 1 8 S 128", "v": "bfloat16 1 8 S 128"},
            {"o": "bfloat16 1 32 S 128"},
            PREFILL,
            {"S": s},
            settings,
        )

    given = prefill('irregular = true\n[sol]\nflops = "4 * 32 * 128 * S * S / 2"\n')
    assert limit(given, H200).t_sol_us == pytest.approx(t_sol_us, rel=1e-3, abs=0.05)
    unsaid = limit(prefill("irregular = true\n"), H200)
    assert unsaid.flops is None
    assert unsaid.t_sol_us == pytest.approx(unsaid.bytes / 4.8e6)


@pytest.mark.parametrize("rows", [1, 170, 8804, 14509])
def test_rms_norm_on_a_b200_stays_below_the_bound_that_was_published_for_it(rows: int) -> None:
    """That one is bytes at 7.667 TB/s and 0.4 us; ours divides the same bytes by the data sheet's 8 TB/s."""
    one = problem(
        {"hidden_states": "bfloat16 B H", "weight": "bfloat16 H"},
        {"output": "bfloat16 B H"},
        "def run(hidden_states, weight):\n"
        "    x = hidden_states.float()\n"
        "    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)\n"
        "    return (y * weight.float()).to(hidden_states.dtype)\n",
        {"B": rows, "H": 4096},
    )
    found = limit(one, B200)
    theirs_us = found.bytes / 7.667e6 + 0.4
    assert found.bytes == 2 * (2 * rows * 4096 + 4096)
    assert found.t_sol_us == pytest.approx(found.bytes / 8e6)
    assert 0.5 * (theirs_us - 0.4) < found.t_sol_us < theirs_us


def test_a_gemm_counts_all_three_matrices() -> None:
    """Some published bounds leave the activations out; every byte that must move is counted here."""
    found = limit(linear(8192, 128, 2048), B200)
    assert found.bytes == 2 * (8192 * 2048 + 128 * 2048 + 8192 * 128)


def test_a_float32_product_is_held_to_tensor_cores_and_a_float64_one_too() -> None:
    flops = 2.0 * 4096**3
    assert limit(linear(4096, 4096, 4096, "float32"), H200).t_sol_us == pytest.approx(flops / 494.7e6)
    assert limit(linear(4096, 4096, 4096, "float64"), H200).t_sol_us == pytest.approx(flops / 66.9e6)


def test_the_floor_allows_for_clocks_above_the_rated_one() -> None:
    found = limit(linear(8192, 8192, 8192), H200)
    assert found.floor_us == pytest.approx(found.t_sol_us * 1830 / 1980)


def copy(n: int, outputs: int = 1) -> Problem:
    body = ", ".join(["x.clone()"] * outputs)
    return problem(
        {"x": "float32 N"},
        {f"y{i}": "float32 N" for i in range(outputs)},
        f"def run(x):\n    return {body}\n",
        {"N": n},
    )


def test_outputs_that_fit_the_cache_need_not_have_reached_memory() -> None:
    """A kernel ends when they are in the cache; what it reads was flushed from there before."""
    small = limit(copy(1 << 20), H200)
    assert small.t_sol_us == pytest.approx(2 * small.floor_us)
    large = limit(copy(1 << 28), H200)
    assert large.t_sol_us - large.floor_us == pytest.approx((60 << 20) / 4.8e6)


def test_given_bytes_are_never_less_than_nothing() -> None:
    one = problem(
        {"x": "float32 N"},
        {"y": "float32 N"},
        "def run(x):\n    return x\n",
        {"N": 1 << 20},
        '[sol]\nbytes = "N"\n',
    )
    found = limit(one, H200)
    assert (found.bytes, found.floor_us) == (1 << 20, 0.0)


def test_a_0d_input_moves_its_bytes_and_sets_no_dtype() -> None:
    one = problem(
        {"x": "float64 M M", "scale": "bfloat16"},
        {"y": "float64 M M"},
        "def run(x, scale):\n    return x @ x * scale\n",
        {"M": 1024},
    )
    found = limit(one, H200)
    assert found.bytes == 2 * 8 * 1024**2 + 2
    assert found.t_sol_us == pytest.approx(2 * 1024**3 / 66.9e6)


def test_nothing_to_do_takes_no_time_and_cannot_be_beaten() -> None:
    found = limit(linear(0, 128, 64), H200)
    assert found.floor_us <= found.t_sol_us < 0.01
    empty = limit(copy(0), H200)
    assert (empty.t_sol_us, empty.floor_us) == (0.0, 0.0)
