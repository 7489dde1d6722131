"""A small CUDA problem, manifests for it and a device that tests can read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from swarm.definition import Definition, parse_definition
from swarm.languages.plan import Plan
from swarm.languages.planning import make_plan
from swarm.languages.protocol import KernelInfo
from swarm.languages.steps import Dim
from swarm.solution import Manifest, load_manifest

DEFINITION: dict[str, Any] = {
    "name": "rows",
    "axes": {
        "n": {"type": "var"},
        "width": {"type": "const", "value": 256},
        "half": {"type": "expr", "expression": "width // 2"},
        "cells": {"type": "expr", "expression": "n * width"},
    },
    "inputs": {
        "x": {"shape": ["n", "width"], "dtype": "bfloat16"},
        "w": {"shape": ["width", "half"], "dtype": "float32"},
        "eps": {"shape": None, "dtype": "float32"},
        "steps": {"shape": None, "dtype": "int32"},
    },
    "outputs": {"y": {"shape": ["n", "width"], "dtype": "bfloat16"}},
    "reference": "def run(x, w, eps, steps):\n    return x\n",
}
HEAD = 'language = "cuda"\nsources = ["kernel.cu"]\n'
LAUNCH = """
[[launch]]
kernel = "rows<8>"
grid = ["n", 1, 1]
block = [128]
args = ["x", "y", "n:i32"]
"""
AXES = {"n": 4, "width": 256, "half": 128, "cells": 1024}
SCALARS = {"eps": 1e-5, "steps": 3}


@dataclass
class Card:
    """A device with these facts; it writes down what it is asked."""

    num_sms: int = 132
    smem_per_block_max: int = 232448
    l2_bytes: int = 50 << 20
    arch: int = 90
    blocks: int = 2
    asked: list[tuple[object, ...]] = field(default_factory=list)

    def max_active_blocks(self, kernel: str, variant: int, threads: int, smem: int) -> int:
        self.asked.append((kernel, variant, threads, smem))
        return self.blocks

    def max_active_clusters(self, kernel: str, variant: int, threads: int, smem: int, cluster: Dim) -> int:
        self.asked.append((kernel, variant, threads, smem, cluster))
        return 7

    def cooperative_blocks(self, kernel: str, variant: int, threads: int, smem: int) -> int:
        return self.num_sms * self.blocks


def definition(**changes: object) -> Definition:
    return parse_definition(json.dumps({**DEFINITION, **changes}).encode(), "definition.json")


def manifest(text: str) -> Manifest:
    return load_manifest({"solution.toml": text.encode(), "kernel.cu": b""})


def plan(tables: str = LAUNCH) -> Plan:
    """Return the plan of a manifest with these tables."""
    return make_plan(manifest(HEAD + tables), definition())


def kernel_info(name: str = "rows<8>", sizes: Sequence[int] = (8, 8, 4), **changes: Any) -> KernelInfo:
    """Return what a cubin says of a kernel."""
    offsets = [sum(sizes[:n]) for n in range(len(sizes))]
    content = {
        "variant": 0,
        "registers": 32,
        "static_smem_bytes": 0,
        "stack_bytes": 0,
        "spill_store_bytes": 0,
        "spill_load_bytes": 0,
        "max_threads": 0,
    }
    return KernelInfo(
        name=name,
        symbol=name,
        parameters=tuple(zip(offsets, sizes, strict=True)),
        **{**content, **changes},
    )
