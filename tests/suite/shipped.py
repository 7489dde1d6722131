"""The problems that ship: what there is of each, by name."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from swarm.problem import CPU_WORKLOAD_FILE, Problem, load_problem

ROOT = Path(__file__).parents[2]
PROBLEMS = ROOT / "problems"
NAMES = sorted(path.name for path in PROBLEMS.iterdir() if path.is_dir())
ON_A_CPU = [name for name in NAMES if (PROBLEMS / name / CPU_WORKLOAD_FILE).exists()]
SEVEN = ("cross_entropy", "int8_matvec", "layernorm", "masked_softmax", "rmsnorm_residual", "rope", "swiglu")
"""Those a swarm works on without a GPU; they have seeds in more than `cuda`, with spaces worth a search."""


def seeded(language: str) -> list[str]:
    """Return the names of the problems that have a seed in a language."""
    return [name for name in NAMES if (PROBLEMS / name / "seed" / language).is_dir()]


@cache
def shipped(name: str) -> Problem:
    return load_problem(PROBLEMS / name)


@cache
def written(what: str) -> dict[str, Any]:
    """Return what the `counts_*.py` beside this file say, `COUNTS` or `SMALL`, by problem."""
    found: dict[str, Any] = {}
    for path in sorted(Path(__file__).parent.glob("counts_*.py")):
        own = getattr(import_module(f"{__package__}.{path.stem}"), what)
        assert not own.keys() & found.keys(), f"{path.name}: {what} of a problem twice"
        found |= own
    return found
