"""Lay out CUDA sources for a builder that compiles every file at the top on its own, with torch's macros.

That is SOL-ExecBench's. What it must compile are units made here, which set parameters and include the
sources; the sources keep their places, under names that the builder leaves alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from swarm.errors import BadInput
from swarm.scan import PROBLEM_HEADER
from swarm.submission import COMPILED_SUFFIXES

OUR_HEADER = "swarm_problem.h"
"""What problem.h is called there: a tree cannot bring one of that name."""
QUOTED = re.compile(r'^(\s*#\s*include\s*")([^"\n]+)(")', re.MULTILINE)
TORCH_MACROS = (
    "__CUDA_NO_HALF_OPERATORS__",
    "__CUDA_NO_HALF_CONVERSIONS__",
    "__CUDA_NO_HALF2_OPERATORS__",
    "__CUDA_NO_BFLOAT16_CONVERSIONS__",
)
"""With these, torch's builder takes away operators that sources may use."""
PRAGMA = re.compile(r"^\s*#\s*pragma\s+unroll\b(.*)|_Pragma\s*\(\s*\"\s*unroll\b(.*)", re.MULTILINE)
RENAMED = {".cu": ".cuh", ".c": ".h"}
"""Suffix -> what is put behind it; the others get .hpp."""


@dataclass(frozen=True, slots=True)
class Sources:
    files: dict[str, bytes]
    """All of them, under their new names."""
    compiled: tuple[str, ...]
    """Those that were compiled on their own, under their new names, in their order."""

    def unit(
        self, macros: Iterable[tuple[str, object]], includes: Iterable[str] | None = None, rest: str = ""
    ) -> str:
        """Return the text of a unit: macros, then the files it includes, all that are compiled by default.

        NVRTC expands macros in `#pragma unroll`, nvcc does not: a name that is in one becomes a constant too.
        """
        lines = [f"#undef {name}" for name in TORCH_MACROS]
        in_pragmas = self._words_in_pragmas()
        for name, value in macros:
            if isinstance(value, int) and name in in_pragmas:
                lines.append(f"constexpr int {name} = {value};  // for #pragma unroll, which knows no macros")
            lines.append(f"#define {name} {value}")
        lines += [f'#include "{name}"' for name in (self.compiled if includes is None else includes)]
        return "\n".join([*lines, rest])

    def _words_in_pragmas(self) -> frozenset[str]:
        texts = [data.decode("utf-8", "replace") for data in self.files.values()]
        pragmas = [" ".join(found) for text in texts for found in PRAGMA.findall(text)]
        return frozenset(re.findall(r"\w+", " ".join(pragmas)))


def included(sources: Mapping[str, bytes], header: str, where: str) -> Sources:
    """Return the sources as files to be included, with `header` for what they know as problem.h."""
    names = {name: _renamed(name) for name in sources}
    files: dict[str, bytes] = {OUR_HEADER: header.encode()}
    for name, data in sources.items():
        if names[name] in files or (names[name] in sources and names[name] != name):
            raise BadInput(f"a source is called {names[name]}", where=where, remedy="rename it")
        files[names[name]] = _with_names(data, names)
    compiled = tuple(names[name] for name in sources if name.endswith(COMPILED_SUFFIXES))
    return Sources(files, compiled)


def _renamed(name: str) -> str:
    """Return a name that is not compiled; one in a folder is not compiled anyway."""
    suffix = next((s for s in COMPILED_SUFFIXES if name.endswith(s)), "")
    return f"{name}{RENAMED.get(suffix, '.hpp')}" if suffix and "/" not in name else name


def _with_names(data: bytes, names: Mapping[str, str]) -> bytes:
    """Let the #include lines of a source name the files as they are called now."""

    def line(match: re.Match[str]) -> str:
        target = OUR_HEADER if match[2] == PROBLEM_HEADER else names.get(match[2], match[2])
        return f"{match[1]}{target}{match[3]}"

    try:
        return QUOTED.sub(line, data.decode()).encode()
    except UnicodeDecodeError:
        return data
