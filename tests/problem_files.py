"""The files of a small valid problem and solution, for tests that change one thing in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

REFERENCE = """import torch

def run(x, weight, scale):
    return (x * weight * scale).to(x.dtype)
"""


def definition(**changes: Any) -> dict[str, Any]:
    """Return definition.json's content with these fields replaced."""
    content: dict[str, Any] = {
        "name": "scale_rows",
        "op_type": "elementwise",
        "axes": {
            "rows": {"type": "var", "description": "tokens"},
            "width": {"type": "const", "value": 64},
            "half": {"type": "expr", "expression": "width // 2"},
            "cells": {"type": "expr", "expression": "rows * half"},
        },
        "inputs": {
            "x": {"shape": ["rows", "width"], "dtype": "bfloat16"},
            "weight": {"shape": ["width"], "dtype": "bfloat16"},
            "scale": {"shape": None, "dtype": "float32"},
        },
        "outputs": {"y": {"shape": ["rows", "width"], "dtype": "bfloat16"}},
        "reference": REFERENCE,
    }
    return {**content, **changes}


def workload(**changes: Any) -> dict[str, Any]:
    """Return one workload line's content with these fields replaced."""
    content: dict[str, Any] = {
        "uuid": "w1",
        "axes": {"rows": 4},
        "inputs": {
            "x": {"type": "random"},
            "weight": {"type": "random"},
            "scale": {"type": "scalar", "value": 0.5},
        },
    }
    return {**content, **changes}


def encoded(content: object) -> bytes:
    return json.dumps(content).encode()


def problem_files(**changes: bytes | str) -> dict[str, bytes]:
    """Return the files of a problem; a keyword such as problem_toml="…" replaces or adds problem.toml."""
    files = {
        "definition.json": encoded(definition()),
        "workload.jsonl": encoded(workload(axes={"rows": 4096})) + b"\n",
        "workload.cpu.jsonl": encoded(workload())
        + b"\n"
        + encoded(workload(uuid="w2", axes={"rows": 0}))
        + b"\n",
        "problem.toml": b'family = "elementwise"\n',
    }
    for keyword, content in changes.items():
        name = {"workload_cpu_jsonl": "workload.cpu.jsonl"}.get(keyword, ".".join(keyword.rsplit("_", 1)))
        files[name] = content if isinstance(content, bytes) else content.encode()
    return files


MANIFEST = """language = "cpp"  # one language
sources = ["kernel.cpp"]

[compile]
options = ["-ffast-math"]

[params]
BLOCK = 64  # rows at a time
UNROLL = 1
MODE = "plain"

[tune]
BLOCK = [16, 64, 256]
"""
KERNEL = """#include "problem.h"
#include <cmath>  // at a time (1 is plain scalar code)

void run(const bf16 *x, const bf16 *weight, double scale, bf16 *y, int64_t rows, int64_t cells) {
  for (int64_t i = 0; i < rows * width; i++) y[i] = x[i] * weight[i % width] * (float)scale;
}
"""


def solution_files(manifest: str = MANIFEST, kernel: str = KERNEL, **others: str) -> dict[str, bytes]:
    """Return a solution/ folder's files."""
    files = {"solution.toml": manifest, "kernel.cpp": kernel, **others}
    return {path: content.encode() for path, content in files.items()}


def write_double(folder: Path) -> None:
    """Write a problem that doubles its input; its seed is the faster the smaller its one parameter."""
    one = {"uuid": "w1", "axes": {"n": 100_000}, "inputs": {"x": {"type": "random"}}}
    content = {
        "name": folder.name,
        "description": "Twice its input",
        "axes": {"n": {"type": "var"}},
        "inputs": {"x": {"shape": ["n"], "dtype": "float32"}},
        "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
        "reference": "",
    }
    kernel = (
        '#include "problem.h"\n'
        'extern "C" void run(const float* x, float* y, int64_t n) {\n'
        "  for (int64_t i = 0; i < n; ++i)\n"
        "    for (int k = 0; k < REPEAT; ++k) {\n"
        "      volatile float once = x[i];\n"
        "      y[i] = 2 * once;\n"
        "    }\n"
        "}\n"
    )
    manifest = (
        'language = "cpp"\nsources = ["kernel.cpp"]\n'
        "[params]\nREPEAT = 16\n[tune]\nREPEAT = [1, 2, 3, 4, 6, 8, 12, 16]\n"
    )
    files = {
        "definition.json": json.dumps(content),
        "workload.jsonl": json.dumps(one),
        "workload.cpu.jsonl": json.dumps(one),
        "reference.py": "def run(x):\n    return 2 * x\n",
        "problem.toml": "[tolerance]\nmax_atol = 1e-5\nmax_rtol = 1e-5\nrequired_matched_ratio = 1.0\n",
        "seed/cpp/kernel.cpp": kernel,
        "seed/cpp/solution.toml": manifest,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
