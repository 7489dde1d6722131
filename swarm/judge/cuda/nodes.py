"""What a sandboxed process needs of the host to reach one GPU, and no other one.

The nodes of other GPUs are not in the box, so their driver does not show them; without namespaces only
CUDA_VISIBLE_DEVICES says which one is meant.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from swarm.errors import Refused
from swarm.judge.cuda.nvml import nvml

DRIVER = Path("/proc/driver/nvidia")
NODES = Path("/dev")
SHARED_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
LIBRARY = "/libcuda.so."


def nodes(uuid: str, *, driver: Path = DRIVER, dev: Path = NODES) -> list[Path]:
    """Return the device nodes for the GPU with this UUID; Refused where they are missing or closed to us."""
    found = [dev / f"nvidia{minor(uuid, driver)}", *(dev / name for name in SHARED_NODES)]
    missing = [str(path) for path in found if not path.exists()]
    if missing:
        raise Refused(f"there is no {', '.join(missing)}", where=uuid, remedy="run nvidia-smi once as root")
    closed = [str(path) for path in found if not _is_open(path)]
    if closed:
        raise Refused(f"a runner may not use {', '.join(closed)}", where=uuid, remedy="chmod 666")
    return found


def minor(uuid: str, driver: Path = DRIVER) -> int:
    """Return the number of the node of the GPU with this UUID."""
    for path in sorted(driver.glob("gpus/*/information")):
        fields = _fields(path.read_text())
        if fields.get("GPU UUID") == uuid and fields.get("Device Minor", "").isdecimal():
            return int(fields["Device Minor"])
    return _minor_by_nvml(uuid)


def library_folders(maps: str | None = None) -> list[Path]:
    """Return the folder of the driver's library that this process has loaded."""
    text = Path("/proc/self/maps").read_text() if maps is None else maps
    paths = {line.split(maxsplit=5)[-1] for line in text.splitlines() if LIBRARY in line}
    return sorted({Path(path).parent for path in paths})


def site_folders(entries: Iterable[str] | None = None) -> list[Path]:
    """Return where this Python finds its packages, in its order."""
    folders = [Path(entry) for entry in (sys.path if entries is None else entries) if entry]
    roots = [folder for folder in folders if any(folder.glob("*.dist-info"))]
    return [f for f in folders if f.is_dir() and any(f.is_relative_to(root) for root in roots)]


def _is_open(path: Path) -> bool:
    """Say whether a runner may use a node: root's runners become another user, anybody else's stay."""
    if os.geteuid() == 0:
        return path.stat().st_mode & 0o006 == 0o006
    return os.access(path, os.R_OK | os.W_OK)


def _fields(text: str) -> dict[str, str]:
    parts = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in parts}


def _minor_by_nvml(uuid: str) -> int:
    """Ask NVML, where the driver's files are hidden, as in some containers."""
    found = nvml()
    try:
        return int(found.nvmlDeviceGetMinorNumber(found.nvmlDeviceGetHandleByUUID(uuid)))
    except found.NVMLError as error:
        raise Refused(f"NVML does not know the GPU: {error}", where=uuid, remedy="see nvidia-smi") from None
