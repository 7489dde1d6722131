"""Folders of files in a cache, named by what they hold."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from swarm.contents import files_hash


def keep(files: Mapping[str, bytes], cache: Path) -> Path:
    """Return a folder of `cache` with exactly `files`; it appears whole or not at all.

    What is there is read again: a machine that lost its power may have kept the names alone.
    """
    folder = cache / files_hash(files)[:40]
    if folder.exists() and not _holds(folder, files):
        shutil.rmtree(folder, ignore_errors=True)
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


def _holds(folder: Path, files: Mapping[str, bytes]) -> bool:
    try:
        return all((folder / name).read_bytes() == data for name, data in files.items())
    except OSError:
        return False
