"""Python with Triton."""

from __future__ import annotations

from swarm.languages.python_host import PythonHost


class Triton(PythonHost):
    """The language `triton`."""

    module = "triton"
    remedy = "pip install triton; torch's build for CUDA brings it"
