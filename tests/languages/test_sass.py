"""The machine code of kernels can be read where nvdisasm is, whichever compiler made them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from swarm.device import cpu_device
from swarm.errors import Refused
from swarm.languages import cuda_toolkit, sass
from swarm.languages.protocol import Artifact, Kind
from tests.languages import test_cuda, test_cuda_cpp

needs_nvdisasm = pytest.mark.skipif(cuda_toolkit.disassembler() is None, reason="no nvdisasm here")


@needs_nvdisasm
def test_every_kernel_of_every_build_has_its_code(tmp_path: Path) -> None:
    artifact = test_cuda.made(test_cuda.compiled(tmp_path))
    found = sass.disassemble(artifact, cpu_device().cores)
    assert set(found) == {(info.variant, info.symbol) for info in artifact.kernels}
    for text in found.values():
        assert "EXIT" in text and not text.endswith("NOP;")
        assert all(line.lstrip().startswith("/*") or line.startswith(".L_") for line in text.splitlines())


@needs_nvdisasm
def test_an_object_of_nvcc_has_its_code(tmp_path: Path) -> None:
    artifact = test_cuda_cpp.compiled(tmp_path)
    assert isinstance(artifact, Artifact)
    [text] = sass.disassemble(artifact, cpu_device().cores).values()
    assert "STG" in text


def test_python_has_none(tmp_path: Path) -> None:
    assert sass.disassemble(Artifact(Kind.PYTHON, tmp_path, "kernel.py::run"), cpu_device().cores) == {}


@needs_nvdisasm
def test_what_nvdisasm_does_not_understand_is_refused(tmp_path: Path) -> None:
    artifact = test_cuda.made(test_cuda.compiled(tmp_path))
    copy = tmp_path / "copy"
    shutil.copytree(artifact.path, copy)
    (copy / "0.cubin").write_bytes(b"no cubin")
    with pytest.raises(Refused, match="nvdisasm failed"):
        sass.disassemble(Artifact(Kind.PLAN, copy, "", kernels=artifact.kernels), cpu_device().cores)


def test_a_machine_without_nvdisasm_is_told_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = test_cuda.made(test_cuda.compiled(tmp_path))
    monkeypatch.setattr(cuda_toolkit, "disassembler", lambda: None)
    with pytest.raises(Refused, match="no nvdisasm on this machine; type: make install EXTRAS=cuda"):
        sass.disassemble(artifact, cpu_device().cores)
