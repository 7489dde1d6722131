"""What kernels are held against, before a run starts: the device's peaks."""

from __future__ import annotations

from swarm.cli.devices import peaks_of
from swarm.cli.view import View
from swarm.device import Device
from swarm.layout import RunRoot
from swarm.problem import Problem


def measure_references(
    root: RunRoot, device: Device, problems: list[Problem], budget_s: float, view: View
) -> None:
    """Calibrate what was not yet."""
    is_new = not root.peaks(device.model).exists()
    peaks = peaks_of(root, device)
    if is_new:
        flops = peaks.gflops.get("float32", 0.0)
        view.say(
            f"calibrated {device.model}: {peaks.bandwidth_gbps:.1f} GB/s, {flops:.0f} GFLOP/s in float32"
        )
