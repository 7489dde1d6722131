"""Folders of files in a cache, named by what they hold."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from swarm.contents import files_hash


def keep(files: Mapping[str, bytes], cache: Path, name: str | None = None) -> Path:
    """Return a folder with `files`, under `name` or what they are; it appears whole or not at all."""
    folder = cache / (files_hash(files)[:40] if name is None else name)
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    temp = Path(tempfile.mkdtemp(dir=cache, prefix=".tmp-"))
    temp.chmod(0o755)
    for path_name, data in files.items():
        path = temp / path_name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    try:
        temp.rename(folder)
    except OSError:  # another judge was first
        if not folder.exists():
            raise
        shutil.rmtree(temp)
    return folder
