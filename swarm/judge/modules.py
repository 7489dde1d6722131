"""What a KernelBench module is called with, holds and returns. Runs where references do: it is executed.

Fake tensors first, so that sizes for a GPU cost nothing here; for real, within a limit, where values decide.
"""

from __future__ import annotations

import inspect
import resource
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

MEMORY_BYTES = 8 << 30
"""What a module may take beyond what this process has, where it runs for real."""
Facts = dict[str, Any]


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes operations that draw random numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = ""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.seen = self.seen or str(func)
        return func(*args, **(kwargs or {}))


def describe(source: str, file: str) -> Facts:
    """Execute `source`, which defines Model, get_inputs and get_init_inputs; return what shapes follow."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES,) * 2)
    space: dict[str, Any] = {"__name__": "module"}
    exec(compile(source, file, "exec"), space)
    try:
        return _facts(space, FakeTensorMode())
    except Exception:  # whatever cannot do without values, of which there are many kinds
        return _facts(space, None)


def _facts(space: dict[str, Any], fake: FakeTensorMode | None) -> Facts:
    def make() -> torch.nn.Module:
        made: torch.nn.Module = space["Model"](*space["get_init_inputs"]())
        return made

    with fake or nullcontext(), torch.no_grad():
        module, given, draws = make(), list(space["get_inputs"]()), _Draws()
        with draws:
            result = module(*given)
    returned = [result] if isinstance(result, torch.Tensor) else result
    if isinstance(returned, dict):
        raise TypeError("forward returns a dict; a tensor or a tuple of tensors is understood")
    for value in returned:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"forward returns a {type(value).__name__} in a tuple; tensors are understood")
    names = _argument_names(module, len(given))
    left = [name for name, _ in _left(module)]
    return {
        "inputs": [_fact(name, value) for name, value in zip(names, given, strict=True)],
        "parameters": [_fact(name, value) for name, value in module.named_parameters()],
        "outputs": [_fact(f"output_{number}", value) for number, value in enumerate(returned)],
        "draws": draws.seen,
        "left": left,
        "changing": _changing(make) if left else "",
        "is_shapes_only": fake is not None,
    }


def _argument_names(module: torch.nn.Module, count: int) -> list[str]:
    parameters = inspect.signature(module.forward).parameters.values()
    names = [item.name for item in parameters if item.kind is not item.VAR_POSITIONAL][:count]
    return names + [f"argument_{number}" for number in range(len(names), count)]


def _fact(name: str, value: Any) -> Facts:
    if isinstance(value, torch.Tensor):
        return {"name": name, "shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
    if isinstance(value, bool | int | float):
        return {"name": name, "shape": None, "dtype": type(value).__name__}
    raise TypeError(f"{name} is a {type(value).__name__}; tensors and numbers are understood")


def _left(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that a module holds beside its parameters."""
    yield from module.named_buffers()
    for place, inner in module.named_modules():
        for name, value in vars(inner).items():
            if isinstance(value, torch.Tensor):
                yield f"{place}.{name}".removeprefix("."), value


def _changing(make: Callable[[], torch.nn.Module]) -> str:
    """Return the first tensor beside the parameters that another module of the kind has with other values."""
    torch.manual_seed(1)
    first = dict(_left(make()))
    torch.manual_seed(2)
    for name, value in _left(make()):
        if not torch.equal(value, first[name]):
            return name
    return ""
