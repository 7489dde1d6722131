"""Our own device code compiles for every architecture we name, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.judge.cuda.cubins import Source, compile_cubin, cubin
from swarm.languages.cubin import kernels


@pytest.mark.parametrize("arch", [80, 100])
def test_the_judges_kernels_compile_without_spilling_much(arch: int, tmp_path: Path) -> None:
    found = kernels(cubin(Source.JUDGE, arch, tmp_path))
    assert set(found) == {"swarm_fill", "swarm_inspect", "swarm_compare", "swarm_nothing"}
    del found["swarm_nothing"]
    for kernel in found.values():
        assert kernel.registers <= 96 and kernel.stack_bytes <= 256 and kernel.max_threads == 256


@pytest.mark.parametrize("arch", [80, 89, 90, 100])
def test_the_runners_kernels_have_the_parameters_it_packs(arch: int, tmp_path: Path) -> None:
    found = kernels(cubin(Source.RUNNER, arch, tmp_path))
    sizes = {name: [size for _, size in kernel.parameters] for name, kernel in found.items()}
    assert sizes == {
        "swarm_spin": [8],
        "swarm_flush_write": [8, 8],
        "swarm_flush_read": [8, 8],
        "swarm_poison": [8, 8, 8],
        "swarm_open": [],
        "swarm_close": [],
        "swarm_veil": [256, 8],
        "swarm_sum": [256, 8, 8],
    }


def test_a_cubin_is_compiled_once(tmp_path: Path) -> None:
    first = cubin(Source.RUNNER, 90, tmp_path)
    (kept,) = tmp_path.glob("*.cubin")
    kept.write_bytes(b"what was kept")
    assert cubin(Source.RUNNER, 90, tmp_path) == b"what was kept" != first
    assert kernels(cubin(Source.RUNNER, 80, tmp_path))


def test_a_mistake_of_ours_is_told_with_the_compilers_words() -> None:
    with pytest.raises(RuntimeError, match='identifier "wrong" is undefined'):
        compile_cubin("__global__ void f() { wrong(); }", ("--gpu-architecture=sm_90",))
