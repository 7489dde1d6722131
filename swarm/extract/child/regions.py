"""Where a graph is cut.

- A matrix product, convolution or attention (an *anchor*) begins a region.
- What follows it in the same module joins it, and so does what its caller does element by element with the
  result: a bias, an activation, a residual. A module that is element-wise throughout (an activation, batch
  normalisation that is not training), a softmax, or one anchor alone counts as its caller's own code.
- A product with the softmax of a product joins that: attention which is spelled out is one region.
- What no region takes in (a norm, an embedding, a router) begins one, which the rest of its module joins.
- Views belong to whoever reads them, so regions exchange tensors as they lie in memory; so do constants, and
  a lower triangle that the model keeps in a buffer: with random values it would mask whole rows.
- A node never joins where a region would then wait for itself.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import fx

from swarm.extract.child import ops
from swarm.extract.child.graph import Traced


@dataclass(eq=False, slots=True)
class Region:
    """Nodes that are cut out together."""

    number: int
    scope: str
    """The module whose code may join."""
    fault: str = ""
    """Why it cannot be a problem; nothing joins it then."""
    nodes: list[fx.Node] = field(default_factory=list)
    needs: set[int] = field(default_factory=set)
    """The regions whose results it waits for, however indirectly."""

    def has(self, name: str) -> bool:
        return any(ops.name(node) == name for node in self.nodes)

    @property
    def is_product(self) -> bool:
        return any(ops.name(node) in ops.MATMUL for node in self.nodes)


@dataclass(frozen=True, eq=False)
class Cut:
    """A region as a function: of tensors that lie in memory, to tensors that others read."""

    traced: Traced
    region: Region
    inputs: tuple[fx.Node, ...]
    triangles: tuple[fx.Node, ...]
    body: tuple[fx.Node, ...]
    """Views and constants included, in order."""
    outputs: tuple[fx.Node, ...]

    @cached_property
    def place(self) -> tuple[str, str]:
        """Path and class of the module that the first node of work is in."""
        first = self.region.nodes[0]
        path, kind = (_stack(first) or [("", "")])[-1]
        return ".".join(filter(None, (self.traced.path, path))), kind.rpartition(".")[2]

    @cached_property
    def signature(self) -> str:
        """What is computed, whatever the sizes: equal for layers that repeat."""
        numbers = {node: f"in{i}" for i, node in enumerate(self.inputs)}
        numbers |= {node: f"tril{tuple(ops.value(node).shape)}" for node in self.triangles}
        lines = [f"in {_kind(node)}" for node in self.inputs]
        for i, node in enumerate(self.body):
            numbers[node] = f"v{i}"
            args = fx.node.map_arg((node.args, node.kwargs), lambda n: numbers[original(n)])
            lines.append(f"{node.target} {args} {_kind(node)}")
        return "\n".join([*lines, *(numbers[node] for node in self.outputs)])

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The sizes of inputs, then outputs."""
        return tuple(tuple(ops.value(node).shape) for node in (*self.inputs, *self.outputs))

    def has_gradient(self, node: fx.Node) -> bool:
        """Say whether training needs its gradient: a float that is a parameter, an input or made of one."""
        if "has_gradient" not in node.meta:
            if node.op == "placeholder":
                is_user = node.name not in self.traced.targets
                found = is_user or bool(getattr(self.traced.values[node.name], "requires_grad", False))
            else:
                found = any(self.has_gradient(n) for n in node.all_input_nodes)
            can_have = any(tensor.dtype.is_floating_point for tensor in ops.tensors(node))
            node.meta["has_gradient"] = found and can_have
        return bool(node.meta["has_gradient"])


def cut(traced: Traced) -> list[Cut]:
    """Cut a graph into regions, in the order in which they begin."""
    for node in traced.graph.graph.nodes:
        node.meta["is_triangle"] = node.op == "placeholder" and _is_triangle(node, traced)
    regions = _Grouping(traced).regions
    of = {node: region for region in regions for node in region.nodes}
    read: dict[Region, dict[fx.Node, None]] = defaultdict(dict)
    for node in traced.graph.graph.nodes:
        if node.op == "output" or node in of:
            for source in sources(node):
                if source in of and of[source] is not of.get(node):
                    read[of[source]][source] = None
    order = {node: i for i, node in enumerate(traced.graph.graph.nodes)}
    cuts = []
    for region in regions:
        reads, body = _function(region, of)
        triangles = [node for node in reads if node.meta["is_triangle"]]
        inputs = [node for node in reads if not node.meta["is_triangle"]]
        found = Cut(
            traced,
            region,
            tuple(inputs),
            tuple(triangles),
            tuple(sorted(body, key=order.__getitem__)),
            tuple(sorted(read[region], key=order.__getitem__)),
        )
        if found.outputs or region.fault:  # else nobody reads what it computes
            cuts.append(found)
    return cuts


def original(node: fx.Node) -> fx.Node:
    """Return what a node is the same as."""
    while node.op == "call_function" and ops.is_same(node):
        first = node.args[0]
        assert isinstance(first, fx.Node)
        node = first
    return node


def is_free(node: fx.Node) -> bool:
    """Say whether a node goes with whoever reads it: a view, or made of constants alone."""
    if node.op != "call_function" or ops.name(node) == "_assert_tensor_metadata":
        return node.op == "call_function"
    if "free" not in node.meta:
        inputs = [original(n) for n in node.all_input_nodes]
        is_constant = all((is_free(n) and not sources(n)) or n.meta["is_triangle"] for n in inputs)
        node.meta["free"] = bool(ops.is_view(node) or (is_constant and not ops.fault(node, {})))
    return bool(node.meta["free"])


def sources(node: fx.Node) -> set[fx.Node]:
    """Return what a node reads, through views: placeholders and nodes of work, but for constants."""
    if "sources" not in node.meta:
        found: set[fx.Node] = set()
        for given in map(original, node.all_input_nodes):
            if is_free(given):
                found |= sources(given)
            elif not given.meta["is_triangle"]:
                found.add(given)
        node.meta["sources"] = found
    return set(node.meta["sources"])


class _Grouping:
    """Puts the nodes of work into regions, one after the other."""

    def __init__(self, traced: Traced) -> None:
        self.regions: list[Region] = []
        self._mutated = traced.mutated
        self._of: dict[fx.Node, Region] = {}
        work = [
            node
            for node in traced.graph.graph.nodes
            if node.op in ("call_function", "get_attr") and not is_free(node) and original(node) is node
        ]
        self._own_code = _own_code(work)
        for node in work:
            self._place(node)

    def _place(self, node: fx.Node) -> None:
        near = {self._of[source] for source in sources(node) if source in self._of}
        region = self._choice(node, near)
        if region is None:
            fault = ops.fault(node, self._mutated)
            region = Region(len(self.regions), self._scope(node), fault)
            self.regions.append(region)
        elif ops.name(node) != "getitem" and _is_above(scope := self._scope(node), region.scope):
            region.scope = scope
        region.nodes.append(node)
        self._of[node] = region
        more = {other.number for other in near if other is not region}
        more |= {number for other in near if other is not region for number in other.needs}
        for other in self.regions:
            if other is region or region.number in other.needs:
                other.needs |= more

    def _choice(self, node: fx.Node, near: set[Region]) -> Region | None:
        """Return the latest region that takes the node in."""
        if ops.name(node) == "getitem":
            return next(iter(near))
        if ops.fault(node, self._mutated):
            return None
        for region in sorted(near, key=lambda region: -region.number):
            waits = any(region.number in other.needs for other in near if other is not region)
            if not waits and not region.fault and self._may_join(node, region):
                return region
        return None

    def _may_join(self, node: fx.Node, region: Region) -> bool:
        scope = self._scope(node)
        if ops.name(node) in ops.ANCHORS:
            is_attention = region.has("softmax") and region.is_product and ops.name(node) in ops.MATMUL
            return is_attention and scope == region.scope
        return scope == region.scope or (ops.is_elementwise(node) and _is_above(scope, region.scope))

    def _scope(self, node: fx.Node) -> str:
        return next((path for path, _ in reversed(_stack(node)) if path not in self._own_code), "")


def _own_code(work: list[fx.Node]) -> set[str]:
    """Return the modules that count as code of whoever calls them."""
    inside: dict[str, list[fx.Node]] = defaultdict(list)
    for node in work:
        if ops.name(node) != "getitem":
            for path, _ in _stack(node):
                inside[path].append(node)
    return {
        path
        for path, nodes in inside.items()
        if path
        and (
            all(ops.is_elementwise(node) or ops.name(node) == "softmax" for node in nodes)
            or (len(nodes) == 1 and ops.name(nodes[0]) in ops.ANCHORS)
        )
    }


def _stack(node: fx.Node) -> list[tuple[str, str]]:
    """Return path and class of the modules that a node is in, outermost first."""
    return [(path, str(kind)) for path, kind in (node.meta.get("nn_module_stack") or {}).values()]


def _is_above(outer: str, inner: str) -> bool:
    return outer != inner and (not outer or inner.startswith(f"{outer}."))


def _function(region: Region, of: dict[fx.Node, Region]) -> tuple[list[fx.Node], set[fx.Node]]:
    """Return what a region reads, in order of first use, and its nodes with the views between them."""
    inputs: dict[fx.Node, None] = {}
    body = set(region.nodes)

    def visit(node: fx.Node) -> None:
        for given in map(original, node.all_input_nodes):
            if is_free(given):
                body.add(given)
                visit(given)
            elif of.get(given) is not region:
                inputs[given] = None

    for node in region.nodes:
        visit(node)
    return list(inputs), body


def _is_triangle(node: fx.Node, traced: Traced) -> bool:
    """Say whether a node is a constant of the model: ones up to the diagonal, zeros above."""
    found = traced.values.get(node.name) if node.name in traced.targets else None
    if not isinstance(found, torch.Tensor) or found.dim() < 2 or found.requires_grad:
        return False
    return torch.equal(found, torch.ones_like(found).tril())


def _kind(node: fx.Node) -> str:
    """Return types and ranks, so that equal signatures differ in sizes only."""
    found: list[Any] = [f"{tensor.dtype}/{tensor.dim()}" for tensor in ops.tensors(node)]
    return " ".join(found)


def is_float(node: fx.Node) -> bool:
    found = ops.value(node)
    return isinstance(found, torch.Tensor) and found.dtype.is_floating_point
