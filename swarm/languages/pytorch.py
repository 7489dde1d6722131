"""Python with torch."""

from __future__ import annotations

from swarm.languages.python_host import PythonHost


class Pytorch(PythonHost):
    """The language `pytorch`."""
