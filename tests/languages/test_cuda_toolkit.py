"""The compilers that are used are the ones that were named, else those whose versions are pinned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm.device import cpu_device
from swarm.errors import BadInput, Refused
from swarm.languages import cuda_toolkit
from tests.languages.test_cuda import gpu


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Look anew, before and after."""
    for found in (cuda_toolkit.nvrtc, cuda_toolkit.nvcc):
        found.cache_clear()
    yield
    for found in (cuda_toolkit.nvrtc, cuda_toolkit.nvcc):
        found.cache_clear()


@pytest.mark.parametrize(
    ("capability", "arch"),
    [((8, 0), "sm_80"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((10, 0), "sm_100a"), ((12, 0), "sm_120a")],
)
def test_what_is_compiled_for_has_all_features_of_the_gpu(capability: tuple[int, int], arch: str) -> None:
    assert cuda_toolkit.arch_for(*capability) == arch


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("B200", "sm_100a"),
        ("NVIDIA H200", "sm_90a"),
        ("NVIDIA H100 80GB HBM3", "sm_90a"),
        ("nvidia-a100-sxm4-80gb", "sm_80"),
        ("NVIDIA GeForce RTX 4090", "sm_89"),
        ("nvidia-l40s", "sm_89"),
        ("sm_86", "sm_86"),
    ],
)
def test_a_gpu_that_is_not_here_goes_by_its_name(name: str, arch: str) -> None:
    assert cuda_toolkit.arch_of(name) == arch


def test_a_device_says_itself_what_to_compile_for() -> None:
    assert cuda_toolkit.arch_of(gpu("sm_100a")) == "sm_100a"
    with pytest.raises(Refused, match="no GPU to compile for"):
        cuda_toolkit.arch_of(cpu_device())
    with pytest.raises(BadInput, match="no architecture is known for 'Voodoo 2'"):
        cuda_toolkit.arch_of("Voodoo 2")


def installation(folder: Path, version: str = "13.9.77", cuda: int = 13090) -> Path:
    """Lay out a toolkit as NVIDIA's installer does, as far as it is looked at."""
    library = folder / "targets" / "x86_64-linux" / "lib"
    library.mkdir(parents=True)
    (library / f"libnvrtc.so.{version}").write_bytes(b"library")
    (library / "libnvrtc.so").symlink_to(f"libnvrtc.so.{version}")
    (library / f"libnvrtc.alt.so.{version}").write_bytes(b"another")
    (folder / "lib64").symlink_to("targets/x86_64-linux/lib")
    include = folder / "include"
    for name in cuda_toolkit.NEEDED_HEADERS:
        path = include / ("cccl" if name.startswith(("nv/", "cuda/")) else "") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#define CUDA_VERSION {cuda}\n")
    (folder / "bin").mkdir()
    nvcc = folder / "bin" / "nvcc"
    nvcc.write_text(f'#!/bin/sh\necho "Cuda compilation tools, release 13.9, V{version}"\n')
    nvcc.chmod(0o755)
    return folder


def test_the_installation_that_is_named_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = installation(tmp_path / "cuda")
    monkeypatch.setenv("CUDA_HOME", str(folder))
    found = cuda_toolkit.nvrtc()
    assert (found.version, found.library.parent) == ("13.9.77", (folder / "lib64").resolve())
    assert found.headers.folders == (folder / "include", folder / "include" / "cccl")
    assert "13090" in found.identity and "13.9.77" in found.identity
    assert (cuda_toolkit.nvcc().version, cuda_toolkit.nvcc().root) == ("13.9.77", folder)
    assert cuda_toolkit.missing_headers(found.headers) == []


def test_an_old_installation_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = installation(tmp_path / "cuda", "12.8.93", 12080)
    monkeypatch.setenv("CUDA_HOME", str(folder))
    assert not cuda_toolkit.nvrtc().version.startswith("12.")
    assert cuda_toolkit.nvcc().root != folder
    monkeypatch.setattr(cuda_toolkit, "roots", lambda: [folder])
    cuda_toolkit.nvrtc.cache_clear()
    with pytest.raises(Refused, match="no NVRTC of CUDA 13"):
        cuda_toolkit.nvrtc()


def test_headers_come_from_where_all_of_them_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part, whole = installation(tmp_path / "part"), installation(tmp_path / "whole")
    (part / "include" / "crt" / "host_config.h").unlink()
    monkeypatch.setattr(cuda_toolkit, "roots", lambda: [part, whole])
    found = cuda_toolkit.nvrtc()
    assert found.library.is_relative_to(part)
    assert found.headers.folders[0] == whole / "include"
    monkeypatch.setattr(cuda_toolkit, "roots", lambda: [part])
    cuda_toolkit.nvrtc.cache_clear()
    assert cuda_toolkit.missing_headers(cuda_toolkit.nvrtc().headers) == ["crt/host_config.h"]
