"""Our own bindings of NVML and CUPTI say what the packages say, and lie where NVIDIA's headers lie."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from swarm.errors import Refused
from swarm.judge.cuda import cupti, nvml
from swarm.languages.toolchain import compiler
from tests.support import REPOSITORY

NAMES = [name for name in vars(nvml) if name.startswith(("NVML_", "nvmlClocksEventReason"))]


def _include() -> Path | None:
    """Return the folder of CUPTI's headers, which come with the package that tests install."""
    for entry in sys.path:
        folder = Path(entry) / "nvidia/cu13/include"
        if (folder / "cupti_activity.h").is_file():
            return folder
    return None


@pytest.fixture(scope="module")
def pynvml() -> Iterator[ModuleType]:
    yield pytest.importorskip("pynvml")


@pytest.mark.parametrize("name", NAMES)
def test_constants_are_nvidias(pynvml: ModuleType, name: str) -> None:
    assert getattr(nvml, name) == getattr(pynvml, name)


def test_structures_are_nvidias(pynvml: ModuleType) -> None:
    for mine, theirs in (
        (nvml.ProcessInfo, pynvml.c_nvmlProcessInfo_v3_t),
        (nvml.ProcessUtilization, pynvml.c_nvmlProcessUtilizationSample_t),
    ):
        assert ctypes.sizeof(mine) == ctypes.sizeof(theirs)
        for name, *_ in mine._fields_:
            assert getattr(mine, name).offset == getattr(theirs, name).offset, name


def test_all_that_is_asked_of_nvml_is_there() -> None:
    """A function that a caller of the package uses and ours lacks would fail on a bare host only."""
    import re

    for name in ("health.py", "nodes.py"):
        text = (REPOSITORY / "swarm/judge/cuda" / name).read_text()
        for used in set(re.findall(r"\b(?:nvmlDevice\w+|nvmlSystem\w+|NVML_\w+)\b", text)):
            assert hasattr(nvml, used), f"{name} asks for {used}"


def test_records_lie_where_the_header_says(tmp_path: Path) -> None:
    folder = _include()
    if folder is None:
        pytest.skip("CUPTI's headers are not installed")
    text = (folder / "cupti_activity.h").read_text(errors="replace")
    import re

    newest = {
        kind: max(int(number) for number in re.findall(rf"}} CUpti_Activity{kind}(\d+);", text))
        for kind in ("Kernel", "Memcpy", "Memset")
    }
    fields = {
        "Kernel": ("kind", "start", "end", "completed", "gridX", "gridY", "gridZ", "correlationId", "name"),
        "Memcpy": ("kind", "start", "end", "correlationId"),
        "Memset": ("kind", "start", "end", "correlationId"),
    }
    lines = [
        f'printf("{kind} {name} %zu\\n", offsetof(CUpti_Activity{kind}{newest[kind]}, {name}));'
        for kind, names in fields.items()
        for name in names
    ]
    kinds = {"MEMCPY": 1, "MEMSET": 2, "CONCURRENT_KERNEL": 10}
    asserts = "".join(f"static_assert(CUPTI_ACTIVITY_KIND_{k} == {v}, {k!r});\n" for k, v in kinds.items())
    source = tmp_path / "offsets.cpp"
    source.write_text(
        "#include <cstddef>\n#include <cstdio>\n#include <cuda.h>\n#include <cupti_activity.h>\n"
        + asserts.replace("'", '"')
        + 'static_assert(CUPTI_ERROR_MAX_LIMIT_REACHED == 12, "limit");\n'
        + "int main() {"
        + "".join(lines)
        + "}\n"
    )
    program = tmp_path / "offsets"
    built = subprocess.run(
        [str(compiler().path), "-I", str(folder), str(source), "-o", str(program)],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    said = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    mine = {"Kernel": cupti.KernelRecord, "Memcpy": cupti.TransferRecord, "Memset": cupti.TransferRecord}
    for line in said.splitlines():
        kind, name, offset = line.split()
        assert getattr(mine[kind], name).offset == int(offset), line


def test_without_a_driver_nvml_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("pynvml") is None or Path("/dev/nvidiactl").exists():
        pytest.skip("there is a driver, or the package is missing")
    with pytest.raises(Refused):
        nvml.nvml()
    with pytest.raises(Refused, match="comes with NVIDIA's driver"):
        nvml.nvmlInit()


@pytest.mark.gpu
def test_nvml_tells_what_the_package_tells(pynvml: ModuleType) -> None:
    from swarm.judge.cuda.devices import cuda_devices

    [device, *_] = cuda_devices()
    told = []
    for found in (pynvml, nvml):
        found.nvmlInit()
        handle = found.nvmlDeviceGetHandleByUUID(device.uuid)
        driver = found.nvmlSystemGetDriverVersion()
        found.nvmlDeviceGetCurrentClocksEventReasons(handle)
        found.nvmlDeviceGetPowerUsage(handle)
        told.append(
            (
                driver.decode() if isinstance(driver, bytes) else driver,
                found.nvmlDeviceGetMinorNumber(handle),
                found.nvmlDeviceGetClockInfo(handle, found.NVML_CLOCK_MEM),
                found.nvmlDeviceGetEnforcedPowerLimit(handle),
                abs(found.nvmlDeviceGetTemperature(handle, found.NVML_TEMPERATURE_GPU) - 50) < 50,
                found.nvmlDeviceGetTotalEccErrors(
                    handle, found.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, found.NVML_VOLATILE_ECC
                ),
                sorted(one.pid for one in found.nvmlDeviceGetComputeRunningProcesses(handle)),
            )
        )
    assert told[0] == told[1]
    with pytest.raises(nvml.NVMLError):
        nvml.nvmlDeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000")


CUPTI_PROBE = """
import importlib, sys
from swarm.judge.cuda import cubins, driver
from swarm.judge.cuda.activities import Activities
if {bare}:
    sys.modules["cupti"] = sys.modules["cupti.cupti"] = None
from swarm.judge.cuda.devices import cuda_devices
from cuda.bindings import driver as cuda
device = cuda_devices()[0]
context = driver.Context(device.uuid)
activities = Activities()
assert (type(activities._cupti).__name__, activities._cupti.__name__) == ("module", {name!r})
activities.switch(True)
address = context.allocate(1 << 20)
for value in (1, 2, 3):
    [result] = cuda.cuMemsetD8Async(address, value, 1 << 20, 0)
    assert int(result) == 0
[result] = cuda.cuCtxSynchronize()
records = activities.take()
activities.switch(False)
assert len(records) == 3, records
assert all(0 < r.end_ns - r.start_ns < 1_000_000 for r in records), records
print([r.name for r in records])
"""


@pytest.mark.gpu
@pytest.mark.parametrize("bare", [False, True], ids=["package", "ours"])
def test_cupti_records_what_ran(bare: bool) -> None:
    name = "swarm.judge.cuda.cupti" if bare else "cupti.cupti"
    code = CUPTI_PROBE.format(bare=bare, name=name)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
