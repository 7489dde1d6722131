"""Languages whose host code is Python: nothing is compiled ahead, the sources are laid out to be imported.

What Triton, CuTe DSL or torch compile, they compile in the runner, in a cache of its own.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from swarm.device import Device, why_no_gpu
from swarm.errors import Refused
from swarm.languages.kept import keep
from swarm.languages.protocol import Artifact, CompileLimits, Failure, Kind
from swarm.problem import Problem
from swarm.scan import PARAMS_MODULE
from swarm.solution import Manifest
from swarm.verdict import Status


class PythonHost:
    """One of the languages `pytorch`, `triton` and `cute_dsl`."""

    module = "torch"
    """What its sources cannot be run without."""
    remedy = "pip install -c constraints.txt torch"

    def compile(
        self,
        files: Mapping[str, bytes],
        manifest: Manifest,
        problem: Problem,
        device: Device,
        cache: Path,
        limits: CompileLimits,
    ) -> Artifact | Failure:
        sources = {name: files[name] for name in manifest.sources}
        for name, data in sources.items():
            if fault := syntax_fault(name, data):
                return Failure(Status.COMPILE_ERROR, fault)
        if not why_no_gpu():
            self._check_module()
        sources[f"{PARAMS_MODULE}.py"] = params_module(manifest.params)
        assert manifest.entry is not None  # the manifest's own rule for host languages
        return Artifact(Kind.PYTHON, keep(sources, cache / "sources"), manifest.entry)

    def _check_module(self) -> None:
        """Refuse what this machine lacks, where kernels are run: it is no fault of the candidate's."""
        if importlib.util.find_spec(self.module) is None:
            raise Refused(f"{self.module} is not installed", remedy=self.remedy)


def params_module(params: Mapping[str, int | float | str]) -> bytes:
    """Return the module that sources take their [params] from; words are strings."""
    lines = "".join(f"{name} = {value!r}\n" for name, value in params.items())
    return f'"""[params] of solution.toml."""\n\n{lines}'.encode()


def syntax_fault(name: str, data: bytes) -> str | None:
    """Return in one sentence why a source is no Python."""
    try:
        compile(data, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        place = f"{name}:{line}" if line else name
        return f"{place}: {error.args[0] if error.args else 'nested too deeply'}"
    return None
