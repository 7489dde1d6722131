"""What the assembler says of each kernel, in the logs of NVRTC and nvcc alike."""

from __future__ import annotations

import re

SPILLS = re.compile(
    r"Compiling entry function '([^']+)'.*\n(?:.*\n)??.*?(\d+) bytes spill stores, (\d+) bytes spill loads"
)
TOLD = re.compile(r"^(?:ptxas info|(?:ptxas)? +\.? *\d+ bytes stack frame).*\n?", re.MULTILINE)


def spills(log: str) -> dict[str, tuple[int, int]]:
    """Return (bytes stored, bytes loaded) per kernel that spills registers to memory, by symbol."""
    return {symbol: (int(stores), int(loads)) for symbol, stores, loads in SPILLS.findall(log)}


def without_figures(log: str) -> str:
    """Return a log without what is said of every kernel."""
    return TOLD.sub("", log).strip()
