"""The same solution again, as a text that no compiler, cache or ledger has seen."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

COMMENTS = {".cpp": "//", ".cu": "//", ".py": "#"}


def variant(seed: Mapping[str, bytes], number: int) -> dict[str, bytes]:
    """Return the same solution as a text that no compiler has seen."""
    changed = dict(seed)
    for name, text in seed.items():
        if comment := COMMENTS.get(Path(name).suffix):
            changed[name] = text + f"{comment} variant {number} of {time.time_ns()}\n".encode()
    return changed
