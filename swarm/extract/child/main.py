"""The process of an extraction: `python -m swarm.extract.child.main FD`.

It is asked once, by one JSON message: which model, on which device. It says what it is doing, waits for a
word before it measures, and ends with what it found. Nothing it says is more than a claim about the model.
"""

from __future__ import annotations

import importlib.util
import json
import socket
import sys
import warnings
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from swarm.extract.child import candidates, ops
from swarm.extract.child.clock import measure_us
from swarm.extract.child.draws import Unfit
from swarm.extract.child.family import families, label
from swarm.extract.child.graph import Call, Left, Traced, one_line, trace
from swarm.extract.child.regions import Cut, cut
from swarm.judge.wire import receive, send


class Wrong(Exception):
    """The model's own code is at fault; the text says how."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(what)
        self.where = where


def main() -> int:
    peer = socket.socket(fileno=int(sys.argv[1]))
    asked = json.loads(receive(peer)[0])
    torch.set_num_threads(asked["threads"])
    warnings.simplefilter("ignore")  # what the exporter warns of is for its developers
    try:
        found = Extraction(peer, asked).result()
    except Wrong as error:
        found = {"error": str(error), "where": error.where}
    _tell(peer, found)
    return 0


class Extraction:
    """From the model's file to what its problems are made of."""

    def __init__(self, peer: socket.socket, asked: dict[str, Any]) -> None:
        self._peer = peer
        self._asked = asked
        self._device = torch.device(asked["device"])
        self._left: list[Left] = []
        self._model_us = 0.0

    def result(self) -> dict[str, Any]:
        """Return the hottest candidates as data, the time of the whole, and what was left out."""
        call = self._call()
        self._say("exporting the model")
        traced, left = trace(call)
        self._left += left
        self._say("cutting it")
        groups = self._groups(traced)
        found = self._candidates(traced, groups)
        self._measure(found, call)
        hot: list[dict[str, Any]] = []
        for family in families(found):
            if len(hot) == self._asked["top"]:
                break
            self._say(f"trying {label(family.first.cut)}")
            try:
                hot.append(family.told())
            except Unfit as error:
                self._leave(family.first.cut, str(error))
        return {
            "found": hot,
            "regions_us": sum(one.total_us for one in found),
            "model_us": self._model_us,
            "left": [{"where": one.where, "what": one.what} for one in dict.fromkeys(self._left)],
        }

    def _call(self) -> Call:
        """Load the user's code, build the model and make its inputs."""
        modules: dict[str, ModuleType] = {}
        build, example = (self._function(self._asked[key], modules) for key in ("build", "example"))
        self._say("building the model")
        model = self._made(build, self._asked["build"])
        if not isinstance(model, nn.Module):
            raise Wrong(self._asked["build"], f"it returned {type(model).__name__}, not a torch.nn.Module")
        args, kwargs = _arguments(self._made(example, self._asked["example"]), self._asked["example"])
        model = model.to(self._device)
        args, kwargs = torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda x: x.to(self._device), (args, kwargs)
        )
        try:
            with torch.no_grad():
                model(*args, **kwargs)
        except Exception as error:
            raise Wrong(self._asked["example"], f"the model does not take it: {one_line(error)}") from None
        return Call("", model, args, kwargs)

    def _function(self, spec: str, modules: dict[str, ModuleType]) -> Any:
        file, _, function = spec.rpartition(":")
        if file not in modules:
            path = Path(file)
            sys.path.insert(0, str(path.parent))
            found = importlib.util.spec_from_file_location(path.stem, path)
            assert found is not None and found.loader is not None
            module = importlib.util.module_from_spec(found)
            sys.modules[path.stem] = module
            try:
                found.loader.exec_module(module)
            except PermissionError as error:
                raise Wrong(
                    file, f"{one_line(error)}; another user, that of the box, must be able to read it"
                ) from None
            except Exception as error:
                raise Wrong(file, one_line(error)) from None
            modules[file] = module
        if not callable(getattr(modules[file], function, None)):
            raise Wrong(file, f"it has no function {function!r}")
        return getattr(modules[file], function)

    def _made(self, function: Any, spec: str) -> Any:
        try:
            return function()
        except Exception as error:
            raise Wrong(spec, f"it raised {one_line(error)}") from None

    def _groups(self, traced: list[Traced]) -> list[list[Cut]]:
        """Return the cuts that can be problems, equal ones together."""
        groups: dict[tuple[str, Any], list[Cut]] = defaultdict(list)
        for one in traced:
            for found in cut(one):
                if found.region.fault:
                    self._leave(found, found.region.fault)
                else:
                    groups[found.signature, found.shapes].append(found)
        return list(groups.values())

    def _candidates(self, traced: list[Traced], groups: list[list[Cut]]) -> list[candidates.Candidate]:
        """Return each group's first member as a function that runs, and what its gradient is."""
        found = []
        for one in traced:
            own = [group for group in groups if group[0].traced is one]
            wanted = {node for group in own for node in (*group[0].inputs, *group[0].outputs)}
            kept = candidates.Keeper(one, wanted).keep()
            for group in own:
                first = group[0]
                try:
                    made = candidates.forward(first, kept)
                except Unfit as error:
                    self._leave(first, str(error))
                    continue
                made.count = len(group)
                made.places = list(dict.fromkeys(other.place[0] for other in group))
                found.append(made)
                if self._asked["backward"]:
                    try:
                        found.append(candidates.backward(made))
                    except Unfit as error:
                        self._leave(first, f"backward: {error}")
        return found

    def _measure(self, found: list[candidates.Candidate], call: Call) -> None:
        """Time everything once the device is ours alone."""
        _tell(self._peer, {"ready": True})
        receive(self._peer)
        with torch.set_grad_enabled(self._asked["backward"]):
            self._model_us = measure_us(lambda: self._step(call), self._device)
        with torch.no_grad():
            for number, one in enumerate(found, 1):
                self._say(f"timing {number} of {len(found)}")
                one.time_us = measure_us(one.timed, self._device)
        _tell(self._peer, {"measured": True})

    def _step(self, call: Call) -> None:
        """Call the model as it is; with --backward, compute the gradients of its parameters too."""
        results = torch.utils._pytree.tree_leaves(call.module(*call.args, **call.kwargs))
        ends = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
        starts = [x for x in call.module.parameters() if x.requires_grad]
        if self._asked["backward"] and ends and starts:
            torch.autograd.grad(ends, starts, [torch.ones_like(x) for x in ends], allow_unused=True)

    def _leave(self, found: Cut, why: str) -> None:
        words = [ops.name(node) for node in found.region.nodes]
        place = found.place[0] or found.place[1]
        self._left.append(Left(place, f"{', '.join(words[:3])}{' …' if len(words) > 3 else ''}: {why}"))

    def _say(self, text: str) -> None:
        _tell(self._peer, {"say": text})


def _arguments(made: Any, spec: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and named arguments: a tensor, a tuple, a dict, or a tuple of these two."""
    match made:
        case torch.Tensor():
            return (made,), {}
        case dict():
            return (), made
        case (tuple() | list() as args, dict() as kwargs):
            return tuple(args), kwargs
        case tuple() | list():
            return tuple(made), {}
    raise Wrong(spec, f"it returned {type(made).__name__}, not a tensor, tuple or dict")


def _tell(peer: socket.socket, message: dict[str, Any]) -> None:
    send(peer, json.dumps(message).encode())


if __name__ == "__main__":
    sys.exit(main())
