"""Puts a device to work: its peaks, and a pool with its judge."""

from __future__ import annotations

from swarm.device import Device
from swarm.judge import peaks as calibration
from swarm.layout import RunRoot
from swarm.locks import device_lock_path, held
from swarm.pool.local import LocalPool
from swarm.sol import Peaks

CALIBRATION_LOCK_S = 600.0
"""Another run on this host may be in the middle of a long measurement."""


def peaks_of(root: RunRoot, device: Device) -> Peaks:
    """Return the device's peaks; a CPU's are measured the first time, a GPU's are published."""
    path = root.peaks(device.model)
    if path.exists() or device.kind == "cuda":
        return calibration.load(path, device, root.build_cache)
    lock = device_lock_path(device.uuid)
    with held(lock, timeout_s=CALIBRATION_LOCK_S, purpose="calibrate the peaks"):
        return calibration.load(path, device, root.build_cache)


def open_pool(root: RunRoot, device: Device) -> LocalPool:
    """Return a pool of `device` alone; close it when done."""
    peaks = {device.model: calibration.to_json(peaks_of(root, device))}
    return LocalPool([device], root.build_cache, peaks, root.judge_logs)
