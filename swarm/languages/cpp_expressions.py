"""Write an expression of `swarm.expressions` as C++ that comes to the same value.

Types are known beforehand: an integer is an int64_t, anything else a double. The one difference left is that
an integer to the power of a negative integer is refused when it happens, not made a double.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from swarm.errors import BadInput
from swarm.expressions import FUNCTIONS, evaluate

OPERATORS: Mapping[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
ROUNDING: Mapping[type[ast.operator], str] = {ast.FloorDiv: "floordiv", ast.Mod: "modulo"}
COMPARISONS: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}

HELPERS = Path(__file__).parent / "exported" / "swarm_numbers.h"
"""What the C++ of an expression calls."""


@dataclass(frozen=True, slots=True)
class Value:
    """A piece of C++; parenthesised where it must be."""

    code: str
    is_integer: bool
    constant: int | float | None = None
    """Its value, if it is known already."""
    test: str = ""
    """The condition, if it is nothing but the truth of one."""

    @property
    def as_double(self) -> str:
        return f"double({self.code})" if self.is_integer else self.code

    @property
    def as_integer(self) -> str:
        """Of type int64_t; refused at run time if it has a fraction."""
        return self.code if self.is_integer else f"swarm::integer({self.code})"

    @property
    def as_truth(self) -> str:
        return self.test or f"({self.code} != 0)"


Names = Mapping[str, Value]
Calls = Mapping[str, Callable[[str], Value]]
"""Functions of a kernel's name."""


def number(value: int | float) -> Value:
    """Write a number."""
    code = f"{int(value)}L" if isinstance(value, int) else repr(value)
    return Value(code if value >= 0 else f"({code})", isinstance(value, int), value)


def truth(test: str) -> Value:
    """Write the truth of a condition as a number."""
    return Value(f"int64_t({test})", True, test=test if test.startswith("(") else f"({test})")


def translate(text: str, names: Names, calls: Calls, where: str) -> Value:
    """Write an expression, which has been checked, as C++ over `names`."""
    return _Translation(names, calls, where).value(ast.parse(text.strip(), mode="eval").body)


class _Translation:
    def __init__(self, names: Names, calls: Calls, where: str) -> None:
        self.names = names
        self.calls = calls
        self.where = where

    def value(self, node: ast.expr) -> Value:
        """Return the C++ of a node, or its value where all that it needs is known."""
        needed = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)} - FUNCTIONS.keys()
        known = {name: value.constant for name, value in self.names.items() if value.constant is not None}
        if needed <= known.keys():
            with suppress(BadInput):  # what has no value has none at run time either
                return number(evaluate(ast.unparse(node), known))
        return self._value(node)

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=int() | float() as literal):
                return number(literal)
            case ast.Name(id=name):
                return self._named(name)
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(self.value(left), op, self.value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.value(operand)
                return Value(f"(-{inner.code})", inner.is_integer)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return truth(f"!{self.value(operand).as_truth}")
            case ast.UnaryOp(operand=operand):
                return self.value(operand)
            case ast.BoolOp(op=op, values=values):
                return self._junction([self.value(item) for item in values], isinstance(op, ast.Or))
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._comparison([self.value(item) for item in (left, *comparators)], ops)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._choice(self.value(test).as_truth, self.value(body), self.value(orelse))
            case ast.Call(func=ast.Name(id=name), args=[argument]) if name in self.calls:
                assert isinstance(argument, ast.Name | ast.Constant)
                return self.calls[name](
                    str(argument.id if isinstance(argument, ast.Name) else argument.value)
                )
            case ast.Call(func=ast.Name(id=name), args=args):
                return self._called(name, [self.value(item) for item in args])
            case _:
                raise AssertionError(f"{ast.dump(node)} passed the check")

    def _named(self, name: str) -> Value:
        if name not in self.names:
            known = ", ".join(sorted(self.names))
            raise BadInput(f"{name!r} has no value", where=self.where, remedy=f"the names are {known}")
        return self.names[name]

    def _binary(self, left: Value, op: ast.operator, right: Value) -> Value:
        both = left.is_integer and right.is_integer
        a, b = (left.code, right.code) if both else (left.as_double, right.as_double)
        if type(op) in OPERATORS:
            return Value(f"({a} {OPERATORS[type(op)]} {b})", both)
        if isinstance(op, ast.Div):
            return Value(f"swarm::divide({left.as_double}, {right.as_double})", False)
        name = "power" if isinstance(op, ast.Pow) else ROUNDING[type(op)]
        return Value(f"swarm::{name}({a}, {b})", both)

    def _junction(self, values: list[Value], is_or: bool) -> Value:
        """The value of the first that decides, else of the last."""
        if all(value.test for value in values):
            return truth((" || " if is_or else " && ").join(value.test for value in values))
        *firsts, result = values
        for value in reversed(firsts):
            ends, goes_on = (value, result) if is_or else (result, value)
            result = self._choice(value.as_truth, ends, goes_on)
        return result

    def _comparison(self, values: list[Value], ops: list[ast.cmpop]) -> Value:
        pairs = zip(values, ops, values[1:], strict=False)
        tests = [
            f"{a.code} {COMPARISONS[type(op)]} {b.code}"
            if a.is_integer and b.is_integer
            else f"{a.as_double} {COMPARISONS[type(op)]} {b.as_double}"
            for a, op, b in pairs
        ]
        return truth(" && ".join(tests))

    def _choice(self, test: str, first: Value, second: Value) -> Value:
        both = first.is_integer and second.is_integer
        a, b = (first.code, second.code) if both else (first.as_double, second.as_double)
        return Value(f"({test} ? {a} : {b})", both)

    def _called(self, name: str, arguments: list[Value]) -> Value:
        both = all(value.is_integer for value in arguments)
        codes = [value.code if both else value.as_double for value in arguments]
        kind = "int64_t" if both else "double"
        match name:
            case "min" | "max":
                code = codes[0] if len(codes) == 1 else f"std::{name}<{kind}>({{{', '.join(codes)}}})"
                return Value(code, both)
            case "ceildiv":
                return Value(f"swarm::ceildiv({', '.join(codes)})", both)
            case "log2":
                return Value(f"swarm::log2({arguments[0].as_double})", False)
            case "ceil" | "floor":
                return Value(codes[0] if both else f"int64_t(std::{name}({codes[0]}))", True)
            case "abs":
                return Value(f"std::abs({codes[0]})", both)
            case _:
                raise AssertionError(f"no function {name!r}")
