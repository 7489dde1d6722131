"""The warm references of one GPU: as on a CPU, in a box that also holds the GPU's device nodes."""

from __future__ import annotations

import sys

from swarm import sandbox
from swarm.device import Device
from swarm.judge.cuda.nodes import library_folders, nodes, site_folders
from swarm.judge.reference import FOLDERS, LIMITS, ROOT, References

THREADS = 4
"""Of torch on the CPU side of a reference: its work is on the GPU."""


class CudaReferences(References):
    """Children map the judge's GPU arenas; what they are asked is the same."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._nodes = nodes(device.uuid)

    def _spawn(self, fd: int) -> sandbox.Process:
        libraries = library_folders()
        return sandbox.spawn(
            [sys.executable, "-P", "-B", "-m", "swarm.judge.cuda.reference_main", str(fd), str(THREADS)],
            limits=LIMITS,
            cores=self._device.cores,
            env={
                "PYTHONPATH": ":".join([str(ROOT), *map(str, site_folders())]),
                "CUDA_VISIBLE_DEVICES": self._device.uuid,
                "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
                "OMP_NUM_THREADS": str(THREADS),
                "USER": "swarm",  # torch asks for it, and there is no /etc/passwd
            },
            readable=[*FOLDERS, *libraries, *site_folders()],
            devices=self._nodes,
            pass_fds=[fd],
        )
