"""A launch plan: what `planning` makes of a manifest, before sizes, scalars and the device are known.

Plain data that goes to the runner as JSON, without torch or pydantic. `resolve` says what it comes to.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swarm.languages.tensormaps import TensorMap

Param = int | float | str
Scalar = int | float | bool


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output as far as a plan needs it."""

    buffer: str
    dtype: str
    shape: tuple[str, ...]
    """Names of axes, or digits."""


@dataclass(frozen=True, slots=True)
class Argument:
    """`form` is `pointer` to a buffer, `map` of a name, or the type of an expression's value."""

    form: str
    text: str


@dataclass(frozen=True, slots=True)
class Launch:
    kernel: str
    variant: int
    when: str | None
    grid: tuple[str, ...]
    block: tuple[str, ...]
    smem: str
    cluster: tuple[str, ...] | None
    cooperative: bool
    pdl: bool
    repeat: str | None
    index: str
    args: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Memset:
    buffer: str
    value: int
    offset: str
    bytes: str | None
    when: str | None
    before: int


@dataclass(frozen=True, slots=True)
class Scratch:
    dtype: str
    shape: tuple[str, ...]
    fill: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a `cuda` solution's launches follow from, beside sizes, scalars and the device."""

    tensors: dict[str, Tensor]
    constants: dict[str, int]
    """Axes that have one size in all workloads."""
    variants: tuple[dict[str, Param], ...]
    """The [params] of each build; 0 is the manifest's own."""
    launches: tuple[Launch, ...]
    memsets: tuple[Memset, ...] = ()
    scratch: dict[str, Scratch] = field(default_factory=dict)
    maps: dict[str, TensorMap] = field(default_factory=dict)

    def kernels(self, variant: int) -> tuple[str, ...]:
        """Return the kernels that one build must have, as the manifest writes them."""
        return tuple(dict.fromkeys(item.kernel for item in self.launches if item.variant == variant))

    def to_json(self) -> dict[str, Any]:
        """Return this as JSON values."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> Plan:
        """Return the plan that `to_json` wrote."""
        return Plan(
            tensors={name: Tensor(**_tuples(item)) for name, item in raw["tensors"].items()},
            constants=dict(raw["constants"]),
            variants=tuple(dict(item) for item in raw["variants"]),
            launches=tuple(
                Launch(**_tuples({**item, "args": [Argument(**arg) for arg in item["args"]]}))
                for item in raw["launches"]
            ),
            memsets=tuple(Memset(**item) for item in raw["memsets"]),
            scratch={name: Scratch(**_tuples(item)) for name, item in raw["scratch"].items()},
            maps={name: TensorMap(**_tuples(item)) for name, item in raw["maps"].items()},
        )


def _tuples(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()}
