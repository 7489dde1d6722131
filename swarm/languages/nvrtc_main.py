"""Compile variants of one translation unit with NVRTC: the process that a candidate's text can hurt.

Runs as `python -I -S nvrtc_main.py SPEC.json` inside a sandbox, in the folder of the sources: standard
library only. For variant k it leaves k.cubin and k.log and, last of all, k.json in the output folder.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from types import SimpleNamespace
from typing import Any

LOG_BYTES = 65_536
"""Of a log, so much of its beginning and so much of its end are kept."""
SUCCESS, OUT_OF_MEMORY, COMPILATION = 0, 1, 6
MAX_PROCESSES = 4


def main() -> int:
    with open(sys.argv[1]) as file:  # noqa: PTH123  # pathlib costs 15 ms to import
        spec = SimpleNamespace(**json.load(file))
    nvrtc = ctypes.CDLL(spec.library)
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    processes = min(len(spec.variants), len(os.sched_getaffinity(0)), MAX_PROCESSES)
    children = []
    for first in range(1, processes):
        child = os.fork()
        if child == 0:
            _compile_all(nvrtc, spec, first, processes)
            os._exit(0)
        children.append(child)
    _compile_all(nvrtc, spec, 0, processes)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    for code in codes:
        if code < 0:
            os.kill(os.getpid(), -code)  # end as it did
    return max(codes, default=0)


def _compile_all(nvrtc: ctypes.CDLL, spec: SimpleNamespace, first: int, step: int) -> None:
    for number in range(first, len(spec.variants), step):
        variant = spec.variants[number]
        said, log, cubin = _compile(nvrtc, spec.unit.encode(), variant["options"], variant["names"])
        _write(f"{spec.out}/{number}.log", log if len(log) <= 2 * LOG_BYTES else _ends(log))
        _write(f"{spec.out}/{number}.cubin", cubin)
        _write(f"{spec.out}/{number}.json", json.dumps(said).encode())


def _compile(
    nvrtc: ctypes.CDLL, unit: bytes, options: list[str], names: list[str]
) -> tuple[dict[str, Any], bytes, bytes]:
    """Return what came of it, the log and the cubin, empty if there is none."""
    program = ctypes.c_void_p()
    _check(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), unit, b"solution.cu", 0, None, None))
    for name in names:
        _check(nvrtc, nvrtc.nvrtcAddNameExpression(program, name.encode()))
    words = [option.encode() for option in options]
    result = nvrtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
    log = _bytes(nvrtc, "ProgramLog", program).replace(b"\0", b"")
    if result != SUCCESS:
        said = {"error": nvrtc.nvrtcGetErrorString(result).decode(), "at_fault": result == COMPILATION}
        return said, log, b""
    symbols = {}
    for name in names:
        symbol = ctypes.c_char_p()
        _check(nvrtc, nvrtc.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(symbol)))
        symbols[name] = (symbol.value or b"").decode()
    return {"symbols": symbols}, log, _bytes(nvrtc, "CUBIN", program)


def _bytes(nvrtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _check(nvrtc: ctypes.CDLL, result: int) -> None:
    if result == OUT_OF_MEMORY:
        raise MemoryError
    if result != SUCCESS:
        raise RuntimeError(nvrtc.nvrtcGetErrorString(result).decode())


def _ends(log: bytes) -> bytes:
    return log[:LOG_BYTES] + b"\n...\n" + log[-LOG_BYTES:]


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:  # noqa: PTH123
        file.write(data)


if __name__ == "__main__":
    sys.exit(main())
