"""What of our environment the processes of a run are given: what it takes to work, and no secret.

A list of what is passed on, not of what is kept back: nobody knows all the names that keys have. Whoever
needs a key is given that one by name. What a shell gave to `swarm run` itself stays in that process.
"""

from __future__ import annotations

import os
import re

PASSED_ON = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|TZ|TMPDIR|LANG|LANGUAGE|VIRTUAL_ENV"
    r"|LD_LIBRARY_PATH|CXX|CC|CUDNN_PATH"
    r"|(LC|XDG|PYTHON|SWARM|CUDA|NVIDIA|OMP|GOMP|KMP|MKL|OPENBLAS|TORCH|TORCHINDUCTOR|TRITON|COV|COVERAGE)_?[A-Z0-9_]*"
)
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE")
"""Not passed on whatever else the name says."""


def environment(**more: str) -> dict[str, str]:
    """Return the environment for a process of ours, with `more` in it."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if PASSED_ON.fullmatch(name) and not SECRET.search(name)
    }
    return kept | more
