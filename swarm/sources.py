"""Which files a tree may hold, whatever they say: plain names, text, few and small enough."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from swarm.errors import BadInput
from swarm.protocol import Output
from swarm.scan import PARAMS_MODULE, PROBLEM_HEADER
from swarm.schema import decode, shown

MAX_PATH_CHARS = 120
GENERATED = (PROBLEM_HEADER, f"{PARAMS_MODULE}.py")
TAKEN_MODULES = sys.stdlib_module_names | {
    "torch", "triton", "numpy", "swarm", "cuda", "cutlass", "cupti", "pynvml", "nvidia", "elftools",
    "sitecustomize", "usercustomize",
}  # fmt: skip
"""What a Python source must not be called: it would be imported instead."""


def check_files(files: Mapping[str, bytes], limits: Output, where: str) -> None:
    """Raise BadInput, naming the file, unless `files` have allowed names and sizes."""
    _check_paths(files, where)
    _check_sizes(files, limits, where)


def _check_paths(files: Mapping[str, bytes], where: str) -> None:
    folded: dict[str, str] = {}
    for path in files:
        parts = path.split("/")
        is_plain = all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", part) for part in parts)
        if not is_plain or len(path) > MAX_PATH_CHARS:
            raise BadInput(
                f"path {shown(path)} is not allowed",
                where=where,
                remedy=f"use letters, digits, _ - . and no leading '.', at most {MAX_PATH_CHARS} characters",
            )
        if parts[-1] in GENERATED:
            raise BadInput(f"{parts[-1]} is ours", where=where + path, remedy="delete it; it is generated")
        if path.lower() in folded:
            raise BadInput(
                f"differs from {folded[path.lower()]!r} only in case", where=where + path, remedy="rename one"
            )
        folded[path.lower()] = path
        if parts[-1].endswith(".py") and _module(parts[0]) in TAKEN_MODULES:
            raise BadInput(
                f"hides the module {_module(parts[0])!r}",
                where=where + path,
                remedy="rename it, e.g. kernel.py",
            )


def _check_sizes(files: Mapping[str, bytes], limits: Output, where: str) -> None:
    if len(files) > limits.max_files:
        raise BadInput(f"{len(files)} files", where=where, remedy=f"use at most {limits.max_files}")
    for path, content in files.items():
        if len(content) > limits.max_file_bytes:
            raise BadInput(
                f"{len(content)} bytes", where=where + path, remedy=f"use at most {limits.max_file_bytes}"
            )
        decode(content, where + path)
        if b"\0" in content:
            raise BadInput("holds a zero byte", where=where + path, remedy="sources are text")
    total = sum(map(len, files.values()))
    if total > limits.max_total_bytes:
        raise BadInput(f"{total} bytes in all", where=where, remedy=f"use at most {limits.max_total_bytes}")


def _module(part: str) -> str:
    return part.removesuffix(".py")
