"""What a runner is told of a problem and of an artifact: by message, so that it needs no path in its box."""

from __future__ import annotations

import os
from pathlib import Path

from swarm.judge.cuda.wire import Layout
from swarm.problem import Problem


def layout_of(problem: Problem) -> Layout:
    """Return what the words of a slot mean for a problem."""
    definition = problem.definition
    specs = definition.inputs | definition.outputs
    return Layout(
        names=tuple(specs),
        dtypes=tuple(str(spec.dtype) for spec in specs.values()),
        shapes=tuple(
            ()
            if spec.shape is None and name in definition.outputs
            else None
            if spec.shape is None
            else tuple(
                int(dim) if dim.isdecimal() else definition.constants.get(dim, dim) for dim in spec.shape
            )
            for name, spec in specs.items()
        ),
        outputs=len(definition.outputs),
        axes=definition.runtime_axes,
        constants=definition.constants,
    )


def content(path: Path) -> dict[str, bytes]:
    """Return the files of an artifact by their path in it; a single file is one by its own name."""
    if path.is_file():
        return {path.name: path.read_bytes()}
    found = {}
    for folder, _, names in os.walk(path):
        for name in sorted(names):
            file = Path(folder) / name
            found[file.relative_to(path).as_posix()] = file.read_bytes()
    return dict(sorted(found.items()))
