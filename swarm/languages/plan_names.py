"""The names of a launch plan in C++: identifiers, literals, and calls for what the device must say."""

from __future__ import annotations

from dataclasses import dataclass

from swarm.definition import Definition
from swarm.languages.cpp_expressions import Calls, Names, Value, number, translate
from swarm.languages.cpp_names import CppNames
from swarm.languages.plan import Plan
from swarm.languages.resolve import launch_of, numeric
from swarm.launch import FACTS


def accessor(variant: int, place: int) -> str:
    """Return the call that gives the address of a build's kernel."""
    return f"swarm_kernel_{variant}_{place}()"


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean at one place."""

    names: Names
    calls: Calls

    def having(self, name: str, value: Value) -> Scope:
        return Scope({**self.names, name: value}, self.calls)


class PlanNames:
    """Spells one plan's names, and writes its expressions."""

    def __init__(self, plan: Plan, definition: Definition, where: str) -> None:
        self.plan = plan
        self.definition = definition
        self.where = where
        self.spelt = CppNames()
        self.overlaps = any(launch.pdl for launch in plan.launches)
        scalars = {name: spec for name, spec in definition.inputs.items() if spec.is_scalar}
        known = {name: number(value) for name, value in plan.constants.items()}
        for name in definition.runtime_axes:
            known[name] = Value(self.axis(name), True)
        for name, spec in scalars.items():
            spelt = self.spelt.spell("input", name)
            is_float = spec.dtype.is_float
            known[name] = Value(spelt if is_float else f"int64_t({spelt})", not is_float)
        for name in FACTS:
            known.setdefault(name, Value(f"swarm_device.{name}", True))
        self.known = known
        self.buffers = {
            tensor.buffer: self.spelt.spell(tensor.buffer.partition(":")[0], name)
            for name, tensor in plan.tensors.items()
        }
        self.buffers |= {f"scratch:{name}": self.scratch(name) for name in plan.scratch}
        self.buffers |= {f"map:{name}": self.map(name) for name in plan.maps}

    def dim(self, texts: tuple[str, ...], scope: Scope, where: str) -> str:
        """Write the extents of a grid, block or cluster."""
        values = [self.at_least(1, text, scope, where) for text in texts]
        return f"swarm::dim({', '.join(values)})"

    def kernel(self, place: int) -> str:
        """Write the address of the kernel of a launch."""
        launch = self.plan.launches[place]
        return accessor(launch.variant, self.plan.kernels(launch.variant).index(launch.kernel))

    def scope(self, place: int | None) -> Scope:
        """Return what names mean in a launch, or outside of all, where the manifest's parameters count."""
        variant = 0 if place is None else self.plan.launches[place].variant
        params = {name: number(value) for name, value in numeric(self.plan.variants[variant]).items()}
        calls = {
            "max_active_blocks": lambda kernel: self._occupancy("max_active_blocks", kernel, place),
            "max_active_clusters": lambda kernel: self._occupancy("max_active_clusters", kernel, place),
        }
        return Scope({**self.known, **params}, calls)

    def _occupancy(self, function: str, kernel: str, place: int | None) -> Value:
        found = launch_of(self.plan.launches, kernel, place)
        launch = self.plan.launches[found]
        where = f"launch[{found}]"
        scope = Scope(self.scope(found).names, {})
        if launch.repeat is not None:
            scope = scope.having(launch.index, number(0))
        block = self.dim(launch.block, scope, f"{where}.block")
        smem = self.at_least(0, launch.smem, scope, f"{where}.smem")
        cluster = ""
        if function == "max_active_clusters":
            cluster = f", {self.dim(launch.cluster or ('1',), scope, f'{where}.cluster')}"
        return Value(f"swarm::{function}({self.kernel(found)}, {block}, {smem}{cluster})", True)

    def value(self, text: str, scope: Scope, where: str) -> Value:
        return translate(text, scope.names, scope.calls, f"{self.where}{where}")

    def integer(self, text: str, scope: Scope, where: str) -> str:
        """Write an expression whose value must be an integer."""
        return self.value(text, scope, where).as_integer

    def at_least(self, least: int, text: str, scope: Scope, where: str) -> str:
        """Write an integer that must not be smaller; checked at run time if it is not known yet."""
        value = self.value(text, scope, where)
        if value.is_integer and value.constant is not None and value.constant >= least:
            return value.code
        return f"swarm::at_least({least}, {value.as_integer})"

    def size_of(self, buffer: str) -> str:
        """Name the variable that holds the bytes of a buffer."""
        return f"swarm_bytes_of_{self.buffers[buffer]}"

    def count_of(self, name: str) -> str:
        """Name the variable that holds how many tensor maps a table makes."""
        return f"swarm_number_of_{self.map(name)}"

    def axis(self, name: str) -> str:
        return self.spelt.spell("axis", name)

    def scratch(self, name: str) -> str:
        return self.spelt.spell("scratch", name, "scratch_")

    def map(self, name: str) -> str:
        return self.spelt.spell("map", name, "map_")
