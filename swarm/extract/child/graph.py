"""Export a model as flat, functional ATen graphs; of what cannot be exported, the parts are tried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.export.graph_signature import InputKind, OutputKind

REASON_CHARS = 240


@dataclass(frozen=True, slots=True)
class Left:
    """Something that no problem is made of, and why."""

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class Call:
    """A module as it is called."""

    path: str
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Traced:
    """The graph of one call: nothing in it changes a tensor in place."""

    path: str
    """Of the module in the model; empty for the model itself."""
    graph: fx.GraphModule
    values: dict[str, Any]
    """Placeholder -> its tensor."""
    targets: dict[str, str]
    """Placeholder of a parameter or buffer -> its name in the module."""
    mutated: dict[str, str]
    """Node -> the buffer or input that the model overwrites with its value."""


def trace(call: Call) -> tuple[list[Traced], list[Left]]:
    """Return the graph of a call; of what cannot be exported, those of the modules it calls."""
    try:
        return [_export(call)], []
    except Exception as error:  # whatever the model's code or the exporter raises is the answer
        reason = one_line(error)
    name = type(call.module).__name__
    left = [Left(call.path or name, f"{name} cannot be exported ({reason}); its parts are tried")]
    traced: list[Traced] = []
    for part in _parts(call):
        inner, more = trace(part)
        traced += inner
        left += more
    return traced, left


def _export(call: Call) -> Traced:
    program = torch.export.export(call.module, call.args, call.kwargs, strict=False)
    program = program.run_decompositions({})  # functional; layers such as linear and softmax stay whole
    values: dict[str, Any] = {}
    targets: dict[str, str] = {}
    flat = iter(torch.utils._pytree.tree_leaves((call.args, call.kwargs)))
    state = {**program.state_dict, **program.constants}
    for spec in program.graph_signature.input_specs:
        name = spec.arg.name
        if spec.kind is InputKind.USER_INPUT:
            values[name] = next(flat)
        else:
            assert spec.target is not None
            values[name], targets[name] = state[spec.target], spec.target
    mutated = {
        spec.arg.name: spec.target or ""
        for spec in program.graph_signature.output_specs
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)
    }
    return Traced(call.path, program.graph_module, values, targets, mutated)


def _parts(call: Call) -> Iterator[Call]:
    """Run the module once, and yield how it calls others; calls that those make are their own."""
    seen: list[Call] = []
    depth = 0

    def enter(path: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            nonlocal depth
            depth += 1
            if depth == 1:
                args, kwargs = torch.utils._pytree.tree_map_only(
                    torch.Tensor, lambda x: x.detach().clone(), (args, kwargs)
                )
                seen.append(Call(path, module, args, kwargs))

        return hook

    def leave(module: nn.Module, args: Any, result: Any) -> None:
        nonlocal depth
        depth -= 1

    with ExitStack() as hooks, torch.no_grad():
        for name, module in call.module.named_modules():
            if module is not call.module:
                path = f"{call.path}.{name}" if call.path else name
                before = module.register_forward_pre_hook(enter(path), with_kwargs=True)
                after = module.register_forward_hook(leave, always_call=True)
                hooks.callback(before.remove)
                hooks.callback(after.remove)
        call.module(*call.args, **call.kwargs)
    yield from seen


def one_line(error: Exception) -> str:
    """Return what an exception says, without the pages that the exporter adds."""
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{type(error).__name__}: {text}"[:REASON_CHARS]
