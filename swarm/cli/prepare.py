"""What `swarm run` does before any role starts: epochs for the problems, and what they are held against."""

from __future__ import annotations

from swarm.cli.view import View
from swarm.device import Device
from swarm.errors import BadInput
from swarm.hub import Hub
from swarm.layout import RunRoot
from swarm.problem import Problem, load_problem
from swarm.protocol import read_protocol
from swarm.solution import validate_tree

AUTHOR = "planner"


def open_epochs(
    root: RunRoot, hub: Hub, device: Device, language: str, names: tuple[str, ...], view: View
) -> tuple[list[Problem], list[BadInput]]:
    """Freeze each problem's files into its branch; return those that can be run and why others cannot.

    A broken problem does not keep the others from running.
    """
    coordination = root.coordination.read_bytes()
    protocol = read_protocol(coordination, root.coordination.name)
    hub.ensure()
    ready, broken = [], []
    for name in names:
        try:
            problem = load_problem(root.problem(name))
            problem.workloads_on(device)
            seed = _seed(problem, language)
            validate_tree(seed, protocol)
            files = {**problem.files, root.coordination.name: coordination}
            hub.ensure_epoch(name, files, seed, AUTHOR)
        except BadInput as error:
            view.say(f"left out: {error}", "red")
            broken.append(error)
            continue
        ready.append(problem)
    return ready, broken


def _seed(problem: Problem, language: str) -> dict[str, bytes]:
    if language not in problem.seeds:
        raise BadInput(
            f"no seed in {language!r}",
            where=problem.name,
            remedy=f"add seed/{language}/, or choose from: {', '.join(sorted(problem.seeds)) or 'nothing'}",
        )
    return problem.seeds[language]
