"""What the corpora are made of: one case is one function that returns the files of a solution tree.

Attacks lie in tests/attacks, honest candidates in tests/honest, each in a module named for its language.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from swarm.device import ON_CPU, ON_GPU
from swarm.verdict import Outcome, Status

TESTS = Path(__file__).parents[1]
FOLDERS = {"attack": "attacks", "honest": "honest"}
LANGUAGES = sorted({*ON_CPU, *ON_GPU}, key=len, reverse=True)

Files = dict[str, bytes]
"""Relative path -> content of the files below solution/."""


@dataclass(frozen=True, slots=True)
class Case:
    """One candidate, and how it must end."""

    name: str
    """`language.function`"""
    kind: str
    """`attack` or `honest`."""
    family: str
    """Of an attack: its row in the table of known tricks, A1 to C7."""
    language: str
    problem: str
    """A folder of tests/corpus/problems."""
    files: Files
    status: Status | Outcome
    """An outcome where a comparison in which nothing fails must end so."""
    reason: str
    """A regular expression that the reason must hold; it names the trick or the evidence."""
    doc: str
    on: str
    """`cpu` or `gpu`."""
    via: str = "verdict"
    """Or `comparison`: it is run as the candidate against the honest `plain_<problem>` of its language."""


_known: list[Case] = []


def attack(
    family: str,
    *,
    status: Status | Outcome,
    reason: str,
    problem: str = "rows",
    on: str | None = None,
    via: str = "verdict",
    language: str | None = None,
) -> Callable[[Callable[[], Files]], Callable[[], Files]]:
    """Enter a function into the corpus as a trick that must end so."""

    def enter(function: Callable[[], Files]) -> Callable[[], Files]:
        _enter("attack", family, problem, function, status, reason, on, via, language)
        return function

    return enter


def honest(
    *, problem: str = "rows", on: str | None = None, language: str | None = None
) -> Callable[[Callable[[], Files]], Callable[[], Files]]:
    """Enter a function into the corpus as a candidate that looks suspicious and must pass."""

    def enter(function: Callable[[], Files]) -> Callable[[], Files]:
        _enter("honest", "", problem, function, Status.PASSED, "", on, "verdict", language)
        return function

    return enter


def cases(kind: str | None = None, on: str | None = None) -> list[Case]:
    """Return the corpus, or the part of it of one kind, or for one kind of device."""
    _import_all()
    return [case for case in _known if kind in (None, case.kind) and on in (None, case.on)]


def champion(case: Case) -> Case:
    """Return the honest candidate that a case is compared with."""
    name = f"{case.language}.plain_{case.problem}"
    [found] = [other for other in cases("honest", case.on) if other.name == name]
    return found


CPP_ROWS = "const float* x, const float* w, float* y, int64_t rows"
CPP_HEAD = """\
#include "problem.h"
#include <cmath>
#include <cstdlib>
#include <cstring>
#define GLUE(a, b) a##b
"""
CPP_HONEST = """
static inline void honest(const float* x, const float* w, float* y, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    float sum = 0;
    for (int64_t i = 0; i < columns; ++i) sum += x[row * columns + i] * x[row * columns + i];
    const float scale = 1 / std::sqrt(sum / columns + 1e-5f);
    for (int64_t i = 0; i < columns; ++i) y[row * columns + i] = x[row * columns + i] * scale * w[i];
  }
}
"""


def cpp(body: str, head: str = "", options: tuple[str, ...] = (), params: str = CPP_ROWS) -> Files:
    """Return a `cpp` tree whose `run` has this body, and these parameters where the problem is not `rows`.

    For `rows` the sources begin with `honest(x, w, y, first, last)`. GLUE makes names the scan cannot read.
    """
    given = CPP_HONEST if params == CPP_ROWS else ""
    source = f'{CPP_HEAD}{given}{head}\nextern "C" void run({params}) {{\n{body}\n}}\n'
    manifest = f'language = "cpp"\nsources = ["kernel.cpp"]\n[compile]\noptions = {json.dumps(options)}\n'
    return {"solution.toml": manifest.encode(), "kernel.cpp": source.encode()}


def python(source: str, language: str) -> Files:
    """Return the tree of a language whose host code is Python; `run` is its entry."""
    manifest = f'language = "{language}"\nsources = ["kernel.py"]\nentry = "kernel.py::run"\n'
    return {"solution.toml": manifest.encode(), "kernel.py": source.encode()}


def plan(kernel: str, tables: str) -> Files:
    """Return a `cuda` tree: device code, and the tables of its launch plan."""
    manifest = f'language = "cuda"\nsources = ["kernel.cu"]\n{tables}'
    return {"solution.toml": manifest.encode(), "kernel.cu": kernel.encode()}


def cuda_cpp(source: str) -> Files:
    """Return a `cuda_cpp` tree; the source defines `run`."""
    manifest = 'language = "cuda_cpp"\nsources = ["kernel.cu"]\n'
    return {"solution.toml": manifest.encode(), "kernel.cu": source.encode()}


def _enter(
    kind: str,
    family: str,
    problem: str,
    function: Callable[[], Files],
    status: Status | Outcome,
    reason: str,
    on: str | None,
    via: str,
    language: str | None,
) -> None:
    language = language or _language(function.__module__.rpartition(".")[2])
    on = on or ("cpu" if language in ON_CPU else "gpu")
    _known.append(
        Case(
            name=f"{language}.{function.__name__}",
            kind=kind,
            family=family,
            language=language,
            problem=problem,
            files=function(),
            status=status,
            reason=reason,
            doc=inspect.getdoc(function) or "",
            on=on,
            via=via,
        )
    )


def _language(module: str) -> str:
    """Return the language that a module is named for: `cuda_cpp_timing` holds cases in `cuda_cpp`."""
    return next(name for name in LANGUAGES if module == name or module.startswith(f"{name}_"))


@cache
def _import_all() -> None:
    for folder in FOLDERS.values():
        for path in sorted((TESTS / folder).glob("*.py")):
            if not path.name.startswith("test_"):
                importlib.import_module(f"tests.{folder}.{path.stem}")
