"""Evaluate small arithmetic expressions that problems and solutions carry, over named numbers.

Nothing is compiled or executed: a whitelist of syntax nodes is walked, with bounds on length and size, so
that an expression can be wrong but never dangerous or slow. Which names exist is the caller's to say.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from functools import lru_cache

from swarm.errors import BadInput

Number = int | float

MAX_CHARS = 1000
MAX_NODES = 300
MAX_MAGNITUDE = 2**63
"""Sizes, counts and FLOPs of real problems stay far below; it keeps `**` from eating memory."""
MAX_EXPONENT = 64


class Grammar(Enum):
    """How much of the language is allowed."""

    FULL = "full"
    """Arithmetic, comparisons, and/or/not, if-else, functions."""
    AXIS = "axis"
    """What SOL-ExecBench allows for an axis: literals, names, + - * / // % **, signs and parentheses."""


BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
COMPARE: dict[type[ast.cmpop], Callable[[Number, Number], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
FUNCTIONS: dict[str, tuple[int, int, Callable[..., Number]]] = {
    "min": (1, 16, lambda *values: min(values)),
    "max": (1, 16, lambda *values: max(values)),
    "ceildiv": (2, 2, lambda a, b: -(-a // b)),
    "log2": (1, 1, math.log2),
    "ceil": (1, 1, math.ceil),
    "floor": (1, 1, math.floor),
    "abs": (1, 1, abs),
}
"""Name -> least and most arguments, function."""

Calls = Mapping[str, Callable[[str], Number]]
"""Functions of a thing that has a name but no number, such as a kernel: `f(name)` or `f('any text')`."""
NO_CALLS: Calls = {}


def evaluate(
    text: str,
    names: Mapping[str, Number],
    *,
    grammar: Grammar = Grammar.FULL,
    where: str | None = None,
    calls: Calls = NO_CALLS,
) -> Number:
    """Return the value of `text`; BadInput naming what is wrong with it."""
    try:
        return _Evaluation(names, calls).value(_parsed(text, grammar, tuple(calls)))
    except _Wrong as error:
        raise _bad_input(text, error, where) from None


def evaluate_int(
    text: str,
    names: Mapping[str, Number],
    *,
    grammar: Grammar = Grammar.FULL,
    where: str | None = None,
    calls: Calls = NO_CALLS,
) -> int:
    """Return the value of `text` as an integer; 2.0 is one, 2.5 is an error."""
    value = evaluate(text, names, grammar=grammar, where=where, calls=calls)
    if value != int(value):
        raise _bad_input(text, _Wrong(f"is {value}, not an integer", "use // or ceildiv"), where)
    return int(value)


def free_names(
    text: str,
    *,
    grammar: Grammar = Grammar.FULL,
    where: str | None = None,
    calls: Collection[str] = (),
) -> frozenset[str]:
    """Return the names that `text` needs a value for; BadInput if it does not parse."""
    tree = _tree(text, grammar, where, calls)
    spoken_for = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    spoken_for |= {id(node) for _, node in _named_calls(tree, calls)}
    return frozenset(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in spoken_for
    )


def terms(text: str, *, where: str | None = None) -> list[str]:
    """Split `text` at its outermost plus and minus signs into expressions that add up to it."""
    return [ast.unparse(part) for part in _terms(_tree(text, Grammar.FULL, where, ()))]


def _terms(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [*_terms(left), *_terms(right)]
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return [*_terms(left), *map(_negated, _terms(right))]
        case _:
            return [node]


def _negated(term: ast.expr) -> ast.expr:
    match term:
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return operand
        case _:
            return ast.UnaryOp(ast.USub(), term)


def called_names(
    text: str, calls: Collection[str], *, where: str | None = None
) -> frozenset[tuple[str, str]]:
    """Return (function, name) for every call of one of `calls`; BadInput if `text` does not parse."""
    tree = _tree(text, Grammar.FULL, where, calls)
    return frozenset((function, _thing(node)) for function, node in _named_calls(tree, calls))


def _tree(text: str, grammar: Grammar, where: str | None, calls: Collection[str]) -> ast.expr:
    try:
        return _parsed(text, grammar, tuple(calls))
    except _Wrong as error:
        raise _bad_input(text, error, where) from None


def _named_calls(tree: ast.expr, calls: Collection[str]) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in calls:
            yield node.func.id, node.args[0]


def _thing(node: ast.expr) -> str:
    """Return the name that is the argument of such a call."""
    match node:
        case ast.Name(id=name) | ast.Constant(value=str() as name):
            return name
        case _:
            raise AssertionError(f"{ast.dump(node)} passed the check")


class _Wrong(Exception):
    """An expression's mistake, before anyone knows which file it came from."""

    def __init__(self, what: str, remedy: str) -> None:
        self.remedy = remedy
        super().__init__(what)


def _bad_input(text: str, error: _Wrong, where: str | None) -> BadInput:
    short = text if len(text) <= 80 else f"{text[:80]}…"
    return BadInput(f"expression {short!r} {error}", where=where, remedy=error.remedy)


@lru_cache(maxsize=4096)
def _parsed(text: str, grammar: Grammar, calls: tuple[str, ...]) -> ast.expr:
    """Return the checked syntax tree; evaluation may then rely on its shape."""
    if len(text) > MAX_CHARS:
        raise _Wrong(f"has {len(text)} characters", f"use at most {MAX_CHARS}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise _Wrong(f"does not parse ({reason})", "correct the syntax") from None
    nodes = list(ast.walk(tree))
    if len(nodes) > MAX_NODES:
        raise _Wrong("is too long", f"use at most {MAX_NODES} names, numbers and operators")
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    things = {id(argument) for argument in _things(nodes, calls)}
    for node in nodes:
        if id(node) not in things:
            _check(node, grammar, called, calls)
    return tree


def _things(nodes: list[ast.AST], calls: tuple[str, ...]) -> Iterator[ast.expr]:
    """Yield the arguments of calls that take a name instead of a number."""
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name(id=function), args=args, keywords=[]) if function in calls:
                match args:
                    case [ast.Name() | ast.Constant(value=str()) as argument]:
                        yield argument
                    case _:
                        raise _Wrong(f"does not give {function} a name", f"write {function}(name)")


def _check(node: ast.AST, grammar: Grammar, called: set[int], calls: tuple[str, ...]) -> None:
    match node:
        case ast.Constant(value=bool()) | ast.Constant(value=int()) | ast.Constant(value=float()):
            ok = not isinstance(node.value, bool)
        case ast.Name():
            ok = id(node) not in called or node.id in FUNCTIONS or node.id in calls
            if not ok:
                raise _Wrong(f"calls {node.id!r}", f"the functions are {', '.join((*FUNCTIONS, *calls))}")
        case ast.BinOp(op=op):
            ok = type(op) in BINARY or isinstance(op, ast.Pow)
        case ast.UnaryOp(op=ast.UAdd() | ast.USub()):
            ok = True
        case ast.Load() | ast.operator() | ast.UAdd() | ast.USub():
            ok = True  # parts of the nodes above
        case ast.Compare(ops=ops):
            ok = grammar is Grammar.FULL and all(type(op) in COMPARE for op in ops)
        case ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.IfExp():
            ok = grammar is Grammar.FULL
        case ast.boolop() | ast.Not() | ast.cmpop():
            ok = grammar is Grammar.FULL
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            ok = grammar is Grammar.FULL
            least, most, _ = FUNCTIONS.get(name, (0, MAX_NODES, None))
            if ok and not least <= len(node.args) <= most:
                raise _Wrong(
                    f"gives {name} {len(node.args)} arguments",
                    f"give it {least}" if least == most else f"give it {least} to {most}",
                )
        case _:
            ok = False
    if not ok:
        allowed = "numbers, axis names, + - * / // % ** and parentheses"
        if grammar is Grammar.FULL:
            allowed += f", comparisons, and/or/not, if-else, {', '.join(FUNCTIONS)}"
        raise _Wrong(f"uses {_described(node)}", f"allowed are {allowed}")


def _described(node: ast.AST) -> str:
    try:
        return repr(ast.unparse(node)) or type(node).__name__
    except (AttributeError, ValueError):
        return type(node).__name__


class _Evaluation:
    """One walk over a checked tree."""

    def __init__(self, names: Mapping[str, Number], calls: Calls) -> None:
        self.names = names
        self.calls = calls

    def value(self, node: ast.expr) -> Number:
        try:
            result = self._value(node)
        except ZeroDivisionError:
            raise _Wrong("divides by zero", "guard it with if-else or max(1, …)") from None
        except (ValueError, OverflowError) as error:
            raise _Wrong(f"has no value here ({error})", "check the values it is used with") from None
        if isinstance(result, complex) or not -MAX_MAGNITUDE <= result <= MAX_MAGNITUDE:
            raise _Wrong("is not a finite number below 2**63 here", "check the values it is used with")
        return result

    def _value(self, node: ast.expr) -> Number:
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id=name):
                return self._named(name)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return self._power(self.value(left), self.value(right))
            case ast.BinOp(left=left, op=op, right=right):
                return BINARY[type(op)](self.value(left), self.value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.value(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return +self.value(operand)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.value(operand)
            case ast.BoolOp(op=op, values=values):
                return self._junction(values, stop_at=isinstance(op, ast.Or))
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._comparison([left, *comparators], ops)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body if self.value(test) else orelse)
            case ast.Call(func=ast.Name(id=name), args=args) if name in self.calls:
                return self.calls[name](_thing(args[0]))
            case ast.Call(func=ast.Name(id=name), args=args):
                return FUNCTIONS[name][2](*map(self.value, args))
            case _:
                raise AssertionError(f"{ast.dump(node)} passed the check")

    def _named(self, name: str) -> Number:
        try:
            return self.names[name]
        except KeyError:
            known = ", ".join(sorted(self.names)) or "none"
            raise _Wrong(f"needs {name!r}, which has no value", f"the names are {known}") from None

    def _power(self, base: Number, exponent: Number) -> Number:
        if abs(exponent) > MAX_EXPONENT:
            raise _Wrong(f"raises to the power {exponent}", f"use at most {MAX_EXPONENT}")
        result: Number = base**exponent
        return result

    def _junction(self, values: list[ast.expr], *, stop_at: bool) -> Number:
        result: Number = not stop_at
        for value in values:
            result = self.value(value)
            if bool(result) is stop_at:
                break
        return result

    def _comparison(self, operands: list[ast.expr], ops: list[ast.cmpop]) -> bool:
        values = [self.value(operand) for operand in operands]
        return all(COMPARE[type(op)](a, b) for op, a, b in zip(ops, values, values[1:], strict=False))
