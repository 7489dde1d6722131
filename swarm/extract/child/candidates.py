"""Cuts as functions that run: printed, held against the graph, timed, and differentiated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import fx

from swarm.extract.child import ops, text, work
from swarm.extract.child.draws import Run, Unfit, as_list
from swarm.extract.child.graph import Traced, one_line
from swarm.extract.child.regions import Cut, is_float


@dataclass(eq=False)
class Candidate:
    """What repeats in a model, once: as it is called there."""

    cut: Cut
    names: list[str]
    outputs: list[str]
    source: str
    run: Run
    inputs: list[torch.Tensor]
    timed: Callable[[], Any]
    """One call of what takes time in the model; of a gradient, without the forward pass before it."""
    direction: str = "forward"
    came: int = 0
    """So many of the first inputs are gradients that come in."""
    count: int = 1
    places: list[str] = field(default_factory=list)
    time_us: float = 0.0

    @property
    def total_us(self) -> float:
        return self.time_us * self.count

    @cached_property
    def is_irregular(self) -> bool:
        return work.is_irregular(self.cut)

    @cached_property
    def flops(self) -> int:
        return work.forward_flops(self.cut) if self.direction == "forward" else work.backward_flops(self.cut)

    @cached_property
    def is_counted(self) -> bool:
        """Say whether torch's counter finds the same FLOPs in the text."""
        if self.direction == "backward":  # it would count the forward pass too
            return False
        return not self.is_irregular and not any(ops.name(node) in ops.ATTENTION for node in self.cut.body)

    @cached_property
    def bytes(self) -> int | None:
        """None where every input is read."""
        return work.forward_bytes(self.cut) if self.direction == "forward" else None


def forward(cut: Cut, seen: dict[fx.Node, torch.Tensor]) -> Candidate:
    """Print a cut and hold it against what the graph computed; Unfit if they differ."""
    names = text.Names(cut)
    inputs = [seen[node].detach().contiguous() for node in cut.inputs]
    if not inputs:
        raise Unfit("it reads nothing")
    for node in cut.outputs:
        if not isinstance(ops.value(node), torch.Tensor):
            raise Unfit(f"its result is no tensor ({ops.name(node)})")
    for node in cut.body:
        if ops.name(node) in ops.UNIQUE and any(
            n in cut.inputs and not is_float(n) for n in node.all_input_nodes
        ):
            raise Unfit(f"its indices must be distinct ({ops.name(node)})")
    reason = ""
    for is_plain in (True, False):  # where a plain name means something else, torch.ops does not
        source = text.reference(cut, names, text.body(cut, text.Names(cut), is_plain=is_plain))
        try:
            run = load(source)
            with torch.no_grad():
                results = as_list(run(*inputs))
        except Exception as error:
            reason = one_line(error)
            continue
        if all(_is_close(a, seen[node]) for a, node in zip(results, cut.outputs, strict=True)):
            return Candidate(
                cut, list(names.inputs.values()), names.outputs, source, run, inputs, partial(run, *inputs)
            )
        reason = "printed, it computes something else"
    raise Unfit(reason)


def backward(of: Candidate) -> Candidate:
    """Return the gradient of a forward candidate as a candidate of its own; Unfit if it has none."""
    variables = [i for i, node in enumerate(of.cut.inputs) if of.cut.has_gradient(node)]
    came: list[torch.Tensor] = []

    def gradients(inputs: Sequence[torch.Tensor]) -> tuple[list[int], Callable[[], Any]]:
        """Return which outputs have gradients, and a call that computes those of the variables."""
        leaves = [x.detach().requires_grad_() if i in variables else x for i, x in enumerate(inputs)]
        with torch.enable_grad():
            results = as_list(of.run(*leaves))
        reached = [i for i, x in enumerate(results) if x.requires_grad]
        if not came:
            dice = torch.Generator().manual_seed(0)
            came.extend(
                torch.empty(x.shape).normal_(generator=dice).to(x) for x in (results[i] for i in reached)
            )
        ends, starts = [results[i] for i in reached], [leaves[i] for i in variables]
        return reached, lambda: torch.autograd.grad(ends, starts, came, allow_unused=True, retain_graph=True)

    grads, call = gradients(of.inputs)
    if not grads:
        raise Unfit("nothing in it has a gradient")
    found = dict(zip(variables, call(), strict=True))
    wanted = [i for i, g in found.items() if g is not None and not any(_is_same(g, x) for x in came)]
    if not wanted:
        raise Unfit("its gradient is the one that comes in")
    unread = {}
    for i in (i for i, x in enumerate(of.inputs) if x.is_floating_point()):
        other = [x + torch.rand_like(x) if j == i else x for j, x in enumerate(of.inputs)]
        again = dict(zip(variables, gradients(other)[1](), strict=True))
        if all(torch.equal(found[j], again[j]) for j in wanted):
            unread[i] = of.inputs[i]
    first = text.grad_name(of.outputs[grads[0]])
    made = {i: _zeros_like(x, first, came[0].dtype) for i, x in unread.items()}
    cut, names = of.cut, text.Names(of.cut)
    is_plain = text.reference(cut, names, text.body(cut, text.Names(cut))) == of.source
    statements = text.body(cut, text.Names(cut), is_plain=is_plain)
    source = text.backward(cut, names, statements, grads, wanted, made)
    run = load(source)
    inputs = [*came, *(x for i, x in enumerate(of.inputs) if i not in unread)]
    with torch.no_grad():
        results = as_list(run(*inputs))
    if not all(_is_close(g, found[i]) for g, i in zip(results, wanted, strict=True)):
        raise Unfit("printed, its gradient is another one")
    takes = [text.grad_name(of.outputs[i]) for i in grads]
    takes += [name for i, name in enumerate(of.names) if i not in unread]
    gives = [text.grad_name(of.names[i]) for i in wanted]
    return Candidate(cut, takes, gives, source, run, inputs, call, "backward", len(came), of.count, of.places)


def load(source: str) -> Run:
    space: dict[str, Any] = {"__name__": "reference"}
    exec(compile(source, "reference.py", "exec"), space)
    run: Run = space["run"]
    return run


class Keeper(fx.Interpreter):
    """Runs a graph and keeps what some of its nodes compute."""

    def __init__(self, traced: Traced, wanted: set[fx.Node]) -> None:
        super().__init__(traced.graph)
        self._wanted = wanted
        self._values = traced.values
        self.kept: dict[fx.Node, torch.Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n in self._wanted:
            self.kept[n] = result
        return result

    def keep(self) -> dict[fx.Node, torch.Tensor]:
        names = [n.name for n in self.module.graph.nodes if n.op == "placeholder"]  # type: ignore[union-attr]
        with torch.no_grad():
            self.run(*(self._values[name] for name in names))
        return self.kept


def _is_close(got: torch.Tensor, right: torch.Tensor | None) -> bool:
    if right is None or got.shape != right.shape or got.dtype != right.dtype:
        return False
    a, b = got.double(), right.double()
    error = 1e-4 if right.dtype in (torch.float32, torch.float64) else 2e-2
    close = (
        ((a - b).abs() <= error * (b.abs() + b[b.isfinite()].abs().mean().nan_to_num()))
        | (a == b)
        | b.isnan()
    )
    return bool(close.all()) if right.is_floating_point() else torch.equal(got, right)


def _is_same(gradient: torch.Tensor, came: torch.Tensor) -> bool:
    return gradient.numel() == came.numel() and torch.equal(gradient.flatten(), came.flatten())


def _zeros_like(x: torch.Tensor, other: str, dtype: torch.dtype) -> str:
    """Return how to make zeros of the shape of `x`, beside the tensor `other` of type `dtype`."""
    if x.dtype == dtype:
        return f"{other}.new_zeros({list(x.shape)})"
    return f"{other}.new_zeros({list(x.shape)}, dtype={x.dtype})"
