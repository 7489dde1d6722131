"""Candidates with one reference text: a problem, with a workload for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from swarm.extract.child import ops, text
from swarm.extract.child.candidates import Candidate
from swarm.extract.child.draws import Rules, as_list, rules
from swarm.extract.child.regions import Cut, original

PLACES = 6
"""Of a layer that repeats, that are told."""


class Family:
    """Layers that differ in sizes alone, if at all."""

    def __init__(self, members: Sequence[Candidate]) -> None:
        self.members = sorted(members, key=lambda one: -one.total_us)
        self.first = self.members[0]

    @property
    def total_us(self) -> float:
        return sum(one.total_us for one in self.members)

    def told(self) -> dict[str, Any]:
        """Return everything that a problem is made of, as data; Unfit if none can be."""
        cut = self.first.cut
        has_order = any(ops.name(node) in ops.ORDERING for node in cut.body)
        found = [rules(one.run, one.inputs, has_order, one.came) for one in self.members]
        with torch.no_grad():
            results = as_list(self.first.run(*self.first.inputs))
        path, module = cut.place
        return {
            "direction": self.first.direction,
            "label": label(cut),
            "op_class": op_class(cut),
            "module": module,
            "path": path,
            "inputs": [
                {"name": name, "dtype": ops.dtype_name(x.dtype), "drawn": hint}
                for name, x, hint in zip(self.first.names, self.first.inputs, found[0].hints, strict=True)
            ],
            "outputs": [
                {"name": name, "dtype": ops.dtype_name(x.dtype), "drawn": ""}
                for name, x in zip(self.first.outputs, results, strict=True)
            ],
            "cases": [_case(one, rule) for one, rule in zip(self.members, found, strict=True)],
            "reference": self.first.source,
            "is_wider": all(rule.is_wider for rule in found),
            "is_irregular": self.first.is_irregular,
            "ratio": found[0].ratio,
            "is_counted": self.first.is_counted,
            "bytes": self.first.bytes,
        }


def _case(one: Candidate, rule: Rules) -> dict[str, Any]:
    with torch.no_grad():
        results = as_list(one.run(*one.inputs))
    return {
        "count": one.count,
        "time_us": one.time_us,
        "places": one.places[:PLACES],
        "shapes": [list(x.shape) for x in (*one.inputs, *results)],
        "atol": rule.atol,
        "rtol": rule.rtol,
        "flops": one.flops,
    }


def families(found: Sequence[Candidate]) -> list[Family]:
    """Put candidates together that one problem.toml fits, hottest first."""
    groups: dict[Any, list[Candidate]] = {}
    for one in found:
        dtypes = tuple(x.dtype for x in one.inputs)
        key = (one.source, one.direction, dtypes, one.is_counted or one.flops, one.bytes)
        groups.setdefault(key, []).append(one)
    return sorted(map(Family, groups.values()), key=lambda family: -family.total_us)


def label(cut: Cut) -> str:
    """Return a few words for what a cut does: its anchor and what follows, or its module."""
    names = [ops.name(node) for node in cut.region.nodes]
    quiet = {
        *text.BINARY,
        *ops.SELECTING,
        "getitem",
        "to",
        "_to_copy",
        "cat",
        "neg",
        "bitwise_not",
        "masked_fill",
    }
    said = list(
        dict.fromkeys(name.strip("_") for name in names if name not in quiet and name not in ops.ANCHORS)
    )
    if op_class(cut) == "attention":
        words = ["attention"]
    elif anchor := next((name for name in names if name in ops.ANCHORS), None):
        rotates = {"cat", "neg"} <= set(names)
        words = [anchor, *(["rope"] if rotates else []), *said[:2], *(["add"] if _adds_an_input(cut) else [])]
    else:
        words = [cut.place[1], *([] if "norm" in cut.place[1].lower() else said[:2])]
    return "_".join(words).replace("native_batch_norm_legit_no_training", "batchnorm")


def op_class(cut: Cut) -> str:
    names = [ops.name(node) for node in cut.region.nodes]
    anchors = {ops.ANCHORS[name] for name in names if name in ops.ANCHORS}
    if "attention" in anchors or (names.count("softmax") and sum(n in ops.MATMUL for n in names) > 1):
        return "attention"
    if anchors:
        return "convolution" if "convolution" in anchors else "matmul"
    if "norm" in (cut.place[1] + " ".join(names)).lower():
        return "normalisation"
    if any(name in ops.IRREGULAR for name in names):
        return "gather"
    return "elementwise" if all(map(ops.is_elementwise, cut.region.nodes)) else "reduction"


def _adds_an_input(cut: Cut) -> bool:
    """Say whether something that comes in is added, as a residual is."""
    return any(
        ops.name(node) == "add" and any(original(n) in cut.inputs for n in node.all_input_nodes)
        for node in cut.region.nodes
    )
