"""What a problem's own code returned, held against its definition; and what it raised, with the place.

Runs inside the reference's process: each function here takes what a stranger made.
"""

from __future__ import annotations

import traceback
from collections.abc import Collection, Mapping
from typing import Any

import torch

ERROR_CHARS = 500
NOT_THERE = "not implemented for '"
"""How torch says that a device has no such operation for a dtype."""


class Unfit(Exception):
    """A result that is not what definition.json says; the text says how."""


def in_order(result: Any, outputs: list[dict[str, Any]]) -> list[Any]:
    """Return what a reference returned (tensor, scalar, sequence or dict) in the order of its outputs."""
    names = [item["name"] for item in outputs]
    if isinstance(result, dict):
        return [_named(result, name) for name in names]
    values = list(result) if isinstance(result, tuple | list) else [result]
    if len(values) != len(outputs):
        raise Unfit(f"{len(values)} results, definition.json says {len(names)}: {', '.join(names)}")
    return values


def made_inputs(result: Any, inputs: list[dict[str, Any]]) -> list[Any]:
    """Return what an entry point for inputs returned in the order of the inputs."""
    if not isinstance(result, dict):
        names = ", ".join(item["name"] for item in inputs)
        raise Unfit(f"it returned {_kind(result)}, not a dict of the inputs {names}")
    values = [_named(result, item["name"]) for item in inputs]
    for item, value in zip(inputs, values, strict=True):
        if isinstance(value, torch.Tensor) and item["offset"] is not None:
            _check_kind(value.dtype, item)
    return values


def as_tensor(value: Any, item: dict[str, Any]) -> torch.Tensor:
    """Return a result as a contiguous tensor of the shape of its output or input."""
    try:
        tensor = torch.as_tensor(value).contiguous()
    except (TypeError, ValueError, RuntimeError):
        raise Unfit(f"{item['name']} is {_kind(value)}, not a tensor") from None
    if list(tensor.shape) != item["dims"]:
        raise Unfit(f"{item['name']} has shape {list(tensor.shape)}, definition.json says {item['dims']}")
    if item["kind"].startswith("float4"):
        return tensor.view(torch.uint8)
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool and item["dtype"] == "uint8" else tensor


def told(error: Exception, name: str, origins: Mapping[str, tuple[str, str]]) -> str:
    """Say in one line what went wrong where.

    `name` is what was called of `origins`, which say of each function its file and how it is called there.
    """
    text = str(error) if isinstance(error, Unfit) else f"{type(error).__name__}: {error}".removesuffix(": ")
    if NOT_THERE in text:
        text += "; convert it first, for example with .float()"
    place = _line(error, {file for file, _ in origins.values()}) or ": ".join(origins.get(name, ()))
    return " ".join((f"{place}: {text}" if place else text).split())[:ERROR_CHARS]


def _line(error: Exception, files: Collection[str]) -> str:
    """Return the file and line of problem code that the error came through last, if it did."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
    return f"{frames[-1].filename} line {frames[-1].lineno}" if frames else ""


def _named(result: dict[Any, Any], name: str) -> Any:
    if name not in result:
        raise Unfit(f"no {name!r} is among what it returned: {', '.join(map(str, result)) or 'nothing'}")
    return result[name]


def _check_kind(dtype: torch.dtype, item: dict[str, Any]) -> None:
    """Raise Unfit unless values of `dtype` are the input's kind of number: whole, floating or boolean."""
    wanted = item["kind"]
    if wanted.startswith("float4"):
        fits = dtype.itemsize == 1
    elif wanted == "bool":
        fits = dtype == torch.bool
    else:
        fits = dtype != torch.bool and dtype.is_floating_point == ("float" in wanted)
    if not fits:
        raise Unfit(f"{item['name']} is {str(dtype).removeprefix('torch.')}, definition.json says {wanted}")


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
