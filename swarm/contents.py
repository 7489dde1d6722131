"""Name a set of files by what they are called and say."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping


def files_hash(files: Mapping[str, bytes]) -> str:
    """Return the same name for the same files only, in whatever order they come."""
    digest = hashlib.sha256()
    for path, data in sorted(files.items()):
        digest.update(f"{path}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()
