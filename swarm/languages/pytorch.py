"""Python with torch: nothing is compiled ahead, the sources are laid out for a runner to import."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from swarm.contents import files_hash
from swarm.device import Device
from swarm.languages.protocol import Artifact, CompileLimits, Failure, Kind
from swarm.problem import Problem
from swarm.solution import Manifest
from swarm.verdict import Status


class Pytorch:
    """The language `pytorch`."""

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
            try:
                compile(data, name, "exec", dont_inherit=True)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                line = getattr(error, "lineno", None)
                place = f"{name}:{line}" if line else name
                reason = error.args[0] if error.args else "nested too deeply"
                return Failure(Status.COMPILE_ERROR, f"{place}: {reason}")
        folder = _keep(sources, cache / "sources")
        assert manifest.entry is not None  # the manifest's own rule for host languages
        return Artifact(Kind.PYTHON, folder, manifest.entry)


def _keep(files: Mapping[str, bytes], cache: Path) -> Path:
    """Return a folder with `files`, named by what they are; it appears whole or not at all."""
    folder = cache / files_hash(files)[:40]
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    temp = Path(tempfile.mkdtemp(dir=cache, prefix=".tmp-"))
    temp.chmod(0o755)
    for name, data in files.items():
        path = temp / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    try:
        temp.rename(folder)
    except OSError:  # another judge was first
        if not folder.exists():
            raise
        shutil.rmtree(temp)
    return folder
