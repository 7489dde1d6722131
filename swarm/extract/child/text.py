"""Print a cut as the PyTorch that a person would have written."""

from __future__ import annotations

import itertools
import keyword
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812, as everybody names it
from torch import fx

from swarm.extract.child import ops
from swarm.extract.child.regions import Cut, original

INLINE_CHARS = 70
ATOM, POWER, UNARY, PRODUCT, SUM, LOOSE = 6, 5, 4, 3, 2, 1
BINARY = {
    "add": ("+", SUM), "sub": ("-", SUM), "mul": ("*", PRODUCT), "div": ("/", PRODUCT),
    "matmul": ("@", PRODUCT), "pow": ("**", POWER),
    "eq": ("==", LOOSE), "ne": ("!=", LOOSE), "lt": ("<", LOOSE), "le": ("<=", LOOSE), "gt": (">", LOOSE),
    "ge": (">=", LOOSE), "bitwise_and": ("&", LOOSE), "bitwise_or": ("|", LOOSE),
}  # fmt: skip
PREFIX = {"neg": "-", "bitwise_not": "~"}
SIZES = {"view": "reshape", "_unsafe_view": "reshape", "reshape": "reshape", "permute": "permute",
         "expand": "expand", "repeat": "repeat", "transpose": "transpose",
         "unsqueeze": "unsqueeze"}  # fmt: skip
"""Methods that are given sizes or dimensions one by one."""
FUNCTIONAL = {
    "linear", "silu", "gelu", "relu", "softplus", "leaky_relu", "elu", "hardtanh", "hardswish", "mish",
    "scaled_dot_product_attention", "layer_norm", "rms_norm", "group_norm", "pad", "one_hot",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "adaptive_avg_pool1d", "max_pool1d",
}  # fmt: skip
LOCALS = {ops.BATCH_NORM: "batch_norm", "slice": "part", "sum": "total", "pow": "power", "to": "cast"}
"""What some results are called; the others are called after their operator."""
NOT_SAID = {
    "cudnn_enable",
    "cudnn_enabled",
    "layout",
    "pin_memory",
    "memory_format",
    "sparse",
    "scale_grad_by_freq",
}
RESERVED = {"run", "forward", "torch", "F", "output", "math"}


class Names:
    """What the inputs and outputs of a cut are called."""

    def __init__(self, cut: Cut) -> None:
        self._taken: set[str] = set(RESERVED)
        self.inputs: dict[fx.Node, str] = {}
        roles = _roles(cut)
        letters = (letter for letter in "xyzuvw" if letter not in self._taken)
        for node in cut.inputs:
            target = cut.traced.targets.get(node.name)
            if node in roles:
                wanted = [roles[node]]
            elif target is not None:
                parts = [part for part in target.split(".") if not part.isdigit()]
                wanted = ["_".join(parts[-1:]), "_".join(parts[-2:])]
            elif node.op == "placeholder":
                wanted = [node.name] if node.name not in self._taken else [next(letters, "x")]
            elif (op := ops.name(node)) in ops.ANCHORS or op in BINARY or op == "getitem" or not self.inputs:
                wanted = [next(letters, "x")]
            else:
                wanted = [LOCALS.get(op, op)]
            self.inputs[node] = self.new(*wanted)
        self.outputs = [self._output(i, cut) for i in range(len(cut.outputs))]

    def new(self, *wanted: str) -> str:
        """Return the first of some names that is free, or the last of them with a number."""
        words = [_identifier(word) for word in wanted]
        numbered = (f"{words[-1]}_{i}" for i in itertools.count(2))
        word = next(word for word in itertools.chain(words, numbered) if word not in self._taken)
        self._taken.add(word)
        return word

    def _output(self, index: int, cut: Cut) -> str:
        return "output" if len(cut.outputs) == 1 else self.new(f"output_{index + 1}")


def body(cut: Cut, names: Names, *, is_plain: bool = True) -> list[str]:
    """Return the statements that compute a cut; with torch.ops for all of them if not `is_plain`."""
    return list(_Printer(cut, names, is_plain).lines())


def reference(cut: Cut, names: Names, statements: list[str]) -> str:
    """Return the text of a forward problem's reference.py."""
    return f"{_imports(statements)}\n\n\n{_function('run', list(names.inputs.values()), statements)}"


def backward(
    cut: Cut, names: Names, statements: list[str], grads: list[int], wanted: list[int], unread: dict[int, str]
) -> str:
    """Return the text of a backward problem's reference.py.

    `grads` are the outputs that gradients come in for, `wanted` the inputs whose gradients go out. `unread`
    are the inputs whose values no gradient depends on, and how to make others like them.
    """
    given = list(names.inputs.values())
    results = ["output" if len(names.outputs) == 1 else f"outputs[{i}]" for i in grads]
    came = [grad_name(names.outputs[i]) for i in grads]
    takes = [*came, *(name for i, name in enumerate(given) if i not in unread)]
    lines = ["# No gradient depends on the values of these."] if unread else []
    lines += [f"{given[i]} = {made}" for i, made in unread.items()]
    lines += [
        "with torch.enable_grad():",
        *(f"    {given[i]} = {given[i]}.detach().requires_grad_()" for i in wanted),
        f"    {'output' if len(names.outputs) == 1 else 'outputs'} = forward({', '.join(given)})",
        f"return torch.autograd.grad({_many(results)}, {_many([given[i] for i in wanted])}, {_many(came)})",
    ]
    forward = _function("forward", given, statements)
    return f"{_imports(statements, always=True)}\n\n\n{forward}\n\n{_function('run', takes, lines)}"


def grad_name(name: str) -> str:
    return f"grad_{name}"


def _many(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"({', '.join(words)})"


def _imports(statements: list[str], always: bool = False) -> str:
    text = "\n".join(statements)
    lines = ["import torch"] if always or "torch." in text else []
    return "\n".join(
        [*lines, *(["import torch.nn.functional as F"] if "F." in text else [])] or ["import torch"]
    )


def _function(name: str, takes: list[str], statements: list[str]) -> str:
    return "\n".join([f"def {name}({', '.join(takes)}):", *(f"    {line}" for line in statements), ""])


class _Printer:
    def __init__(self, cut: Cut, names: Names, is_plain: bool) -> None:
        self._cut = cut
        self._names = names
        self._is_plain = is_plain
        self._uses = Counter(original(n) for node in cut.body for n in _arguments(node))
        self._uses.update(cut.outputs)
        self._said: dict[fx.Node, tuple[str, int]] = {n: (word, ATOM) for n, word in names.inputs.items()}

    def lines(self) -> Iterator[str]:
        first = next(iter(self._names.inputs.values()), "x")
        for node in self._cut.triangles:
            word = self._names.new(self._cut.traced.targets[node.name].rpartition(".")[2])
            self._said[node] = (word, ATOM)
            shape = list(ops.value(node).shape)
            dtype = ops.value(node).dtype
            yield f"{word} = torch.ones({shape}, dtype={dtype}, device={first}.device).tril()"
        for node in self._cut.body:
            text, level = self._expression(node)
            is_output = node in self._cut.outputs
            is_last = is_output and len(self._cut.outputs) == 1 and node is self._cut.body[-1]
            if is_last:
                yield f"return {text}"
                return
            is_short = len(text) <= INLINE_CHARS and ops.name(node) not in ops.ANCHORS
            if ops.name(node) == "getitem" or (is_short and not is_output and self._uses[node] == 1):
                self._said[node] = (text, level)
                continue
            word = self._names.new(LOCALS.get(ops.name(node), ops.name(node)))
            self._said[node] = (word, ATOM)
            yield f"{word} = {text}"
        yield f"return {', '.join(self._said[node][0] for node in self._cut.outputs)}"

    def _expression(self, node: fx.Node) -> tuple[str, int]:
        name = ops.name(node)
        if name == "getitem":
            return self._part(node)
        if not self._is_plain and name != ops.BATCH_NORM:
            return self._raw(node), ATOM
        given, named = list(node.args), dict(node.kwargs)
        if name == "rsub" and len(given) == 2 and not named:
            name, given = "sub", given[::-1]
        if (
            name in BINARY
            and len(given) == 2
            and set(named) <= ({"alpha"} if name in ("add", "sub") else set())
        ):
            return self._binary(name, given, named)
        if name in PREFIX:
            return f"{PREFIX[name]}{self._at(given[0], UNARY)}", UNARY
        special: Callable[[fx.Node], str] | None = getattr(self, f"_print_{name.lstrip('_')}", None)
        if special is not None:
            return special(node), ATOM
        if name in SIZES:
            sizes = given[1] if isinstance(given[1], list | tuple) else given[1:]
            return f"{self._at(given[0], ATOM)}.{SIZES[name]}({', '.join(map(self._text, sizes))})", ATOM
        if name in FUNCTIONAL and hasattr(F, name):
            return f"F.{name}({self._call(node, 0)})", ATOM
        if given and isinstance(given[0], fx.Node) and hasattr(torch.Tensor, name):
            return f"{self._at(given[0], ATOM)}.{name}({self._call(node, 1)})", ATOM
        if hasattr(torch, name):
            return f"torch.{name}({self._call(node, 0)})", ATOM
        return self._raw(node), ATOM

    def _part(self, node: fx.Node) -> tuple[str, int]:
        source, index = node.args
        assert isinstance(source, fx.Node)
        if ops.name(source) == ops.BATCH_NORM:
            return self._said[source]
        return f"{self._at(source, ATOM)}[{index}]", ATOM

    def _binary(self, name: str, given: list[Any], named: dict[str, Any]) -> tuple[str, int]:
        sign, level = BINARY[name]
        right_level = level if name == "pow" else level + 1
        right = self._at(given[1], UNARY if "alpha" in named else right_level)
        if "alpha" in named:
            right = f"{self._text(named['alpha'])} * {right}"
        return f"{self._at(given[0], level + (name == 'pow' or level == LOOSE))} {sign} {right}", level

    def _print_to(self, node: fx.Node) -> str:
        dtype = next((a for a in (*node.args[1:], *node.kwargs.values()) if isinstance(a, torch.dtype)), None)
        dtype = dtype or ops.value(node).dtype
        return f"{self._at(node.args[0], ATOM)}.to({dtype})"

    _print_to_copy = _print_type_as = _print_to

    def _print_slice(self, node: fx.Node) -> str:
        first = node.args[0]
        assert isinstance(first, fx.Node)
        dim = ops.argument(node, "dim", 0) % ops.value(first).dim()
        begin, end, step = (ops.argument(node, word, None) for word in ("start", "end", "step"))
        stop = "" if end is None or end > 1 << 60 else self._text(end)
        by = "" if step in (None, 1) else f":{self._text(step)}"
        return f"{self._at(first, ATOM)}[{':, ' * dim}{self._text(begin) if begin else ''}:{stop}{by}]"

    def _print_index(self, node: fx.Node) -> str:
        first, at = node.args
        assert isinstance(at, list | tuple)
        return f"{self._at(first, ATOM)}[{', '.join(':' if i is None else self._text(i) for i in at)}]"

    def _print_embedding(self, node: fx.Node) -> str:
        return f"F.embedding({self._text(node.args[1])}, {self._text(node.args[0])})"

    def _print_einsum(self, node: fx.Node) -> str:
        equation, operands = node.args[:2]
        assert isinstance(operands, list | tuple)
        return f'torch.einsum("{equation}", {", ".join(map(self._text, operands))})'

    def _print_native_batch_norm_legit_no_training(self, node: fx.Node) -> str:
        x, weight, bias, mean, var, _, eps = node.args
        words = ", ".join(map(self._text, (x, mean, var, weight, bias)))
        return f"F.batch_norm({words}, eps={self._text(eps)})"

    def _raw(self, node: fx.Node) -> str:
        assert isinstance(node.target, torch._ops.OpOverload)
        words = [*map(self._text, node.args)]
        words += [f"{k}={self._text(v)}" for k, v in node.kwargs.items() if k not in NOT_SAID]
        return f"torch.ops.{node.target}({', '.join(words)})"

    def _call(self, node: fx.Node, skipped: int) -> str:
        """Print arguments: by position as long as they are tensors, the rest by name, and no defaults."""
        assert isinstance(node.target, torch._ops.OpOverload)
        schema = node.target._schema.arguments
        words, by_name = [], False
        for i, argument in enumerate(schema):
            is_given = i < len(node.args) or argument.name in node.kwargs
            if i < skipped or argument.name in NOT_SAID or not is_given:
                by_name = by_name or (i >= skipped and not is_given)
                continue
            value = node.args[i] if i < len(node.args) else node.kwargs[argument.name]
            if argument.has_default_value() and value == argument.default_value:
                by_name = True
                continue
            by_name = by_name or not (isinstance(value, fx.Node) or i == 0)
            words.append(f"{argument.name}={self._text(value)}" if by_name else self._text(value))
        return ", ".join(words)

    def _at(self, value: Any, level: int) -> str:
        """Print an operand that must bind at least as tightly as `level`."""
        if isinstance(value, fx.Node):
            text, own = self._said[original(value)]
            return text if own >= level else f"({text})"
        text = self._text(value)
        return f"({text})" if text.startswith("-") and level > UNARY else text

    def _text(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return self._said[original(value)][0]
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self._text, value))}]"
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if isinstance(value, torch.device):
            first = next(iter(self._names.inputs.values()), None)
            return f"{first}.device" if first else f'"{value.type}"'
        return repr(value)


def _arguments(node: fx.Node) -> list[fx.Node]:
    """Return the nodes that a node mentions, as often as it does."""
    found: list[fx.Node] = []
    fx.node.map_arg((node.args, node.kwargs), found.append)
    return found


def _roles(cut: Cut) -> dict[fx.Node, str]:
    """Return names for what attention reads straight away."""
    for node in cut.body:
        if ops.name(node) in ops.ATTENTION:
            roles: dict[fx.Node, str] = {}
            for word, given in zip(("query", "key", "value", "mask"), node.args, strict=False):
                source = _through_views(given, cut) if isinstance(given, fx.Node) else None
                if source in cut.inputs and source not in roles:
                    roles[source] = word
            return roles
    return {}


def _through_views(node: fx.Node, cut: Cut) -> fx.Node:
    node = original(node)
    while node in cut.body and ops.is_view(node):
        node = original(node.all_input_nodes[0])
    return node


def _identifier(word: str) -> str:
    text = "".join(char if char.isalnum() and char.isascii() else "_" for char in word).strip("_").lower()
    return f"_{text}" if not text or text[0].isdigit() or keyword.iskeyword(text) else text
