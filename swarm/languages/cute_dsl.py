"""Python with CUTLASS's CuTe DSL."""

from __future__ import annotations

from swarm.languages.python_host import PythonHost


class CuteDsl(PythonHost):
    """The language `cute_dsl`."""

    module = "cutlass"
    remedy = "pip install nvidia-cutlass-dsl"
