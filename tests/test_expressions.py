from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import BadInput
from swarm.expressions import (
    FUNCTIONS,
    MAX_MAGNITUDE,
    Grammar,
    called_names,
    evaluate,
    evaluate_int,
    free_names,
    terms,
)

NAMES = {"a": 7, "b": 2, "x": 0.5, "zero": 0}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a + b * 3", 13),
        ("-(a - b)", -5),
        ("a // b", 3),
        ("a / b", 3.5),
        ("a % b", 1),
        ("b ** 10", 1024),
        ("ceildiv(a, b)", 4),
        ("ceildiv(-a, b)", -3),
        ("min(a, b, 9) + max(a, b)", 9),
        ("log2(b ** 5)", 5),
        ("ceil(x) + floor(x) + abs(-a)", 8),
        ("1 < b < a", True),
        ("1 < a < b", False),
        ("a if b == 2 else 1 / zero", 7),
        ("zero and 1 / zero", 0),
        ("b or 1 / zero", 2),
        ("not zero", True),
        (" 1e3 ", 1000.0),
    ],
)
def test_an_expression_has_its_value(text: str, value: float) -> None:
    assert evaluate(text, NAMES) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("c + 1", "expression 'c + 1' needs 'c', which has no value; the names are a, b, x, zero"),
        ("a +", "expression 'a +' does not parse (invalid syntax); correct the syntax"),
        ("", "expression '' does not parse (invalid syntax); correct the syntax"),
        ("a / zero", "expression 'a / zero' divides by zero; guard it with if-else or max(1, …)"),
        ("a % zero", "expression 'a % zero' divides by zero; guard it with if-else or max(1, …)"),
        ("sqrt(a)", f"expression 'sqrt(a)' calls 'sqrt'; the functions are {', '.join(FUNCTIONS)}"),
        ("ceildiv(a)", "expression 'ceildiv(a)' gives ceildiv 1 arguments; give it 2"),
        ("2 ** 100", "expression '2 ** 100' raises to the power 100; use at most 64"),
        (
            "2 ** 64",
            "expression '2 ** 64' is not a finite number below 2**63 here; check the values it is used with",
        ),
        (
            "1e308 * 10",
            "expression '1e308 * 10' is not a finite number below 2**63 here; "
            "check the values it is used with",
        ),
        (
            "(-1) ** 0.5",
            "expression '(-1) ** 0.5' is not a finite number below 2**63 here; "
            "check the values it is used with",
        ),
        ("log2(zero)", None),
        ("a" * 2000, None),
        ("+".join("a" * 400), None),
        ("(" * 300 + "1" + ")" * 300, None),
    ],
)
def test_a_broken_expression_is_one_line_with_a_remedy(text: str, message: str | None) -> None:
    with pytest.raises(BadInput) as caught:
        evaluate(text, NAMES)
    line = str(caught.value)
    assert "\n" not in line and "; " in line
    assert message is None or line == message


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "a.real",
        "[a]",
        "(a, b)",
        "'text'",
        "True",
        "lambda: 1",
        "a if b else (c := 3)",
        "f'{a}'",
        "a[0]",
        "min(*a)",
        "min(a, key=b)",
        "a @ b",
        "a << 62",
        "~a",
        "a is b",
        "None",
        "1j",
        "(lambda: 1)()",
        "min",
    ],
)
def test_nothing_but_arithmetic_is_understood(text: str) -> None:
    with pytest.raises(BadInput):
        evaluate(text, NAMES)


@pytest.mark.parametrize("text", ["a < b", "min(a, b)", "a if b else 1", "not a", "a and b"])
def test_an_axis_allows_less_than_other_expressions(text: str) -> None:
    evaluate(text, NAMES)
    with pytest.raises(BadInput, match="allowed are numbers, axis names"):
        evaluate(text, NAMES, grammar=Grammar.AXIS)


def test_an_integer_may_be_written_as_a_float_but_not_be_a_fraction() -> None:
    assert evaluate_int("a * 2.0", NAMES) == 14
    with pytest.raises(BadInput, match=r"is 3\.5, not an integer"):
        evaluate_int("a / b", NAMES)


def test_the_place_is_named_first() -> None:
    with pytest.raises(BadInput, match=r"^problem.toml: sol.flops: expression 'q'"):
        evaluate("q", {}, where="problem.toml: sol.flops")


def test_function_names_are_not_free() -> None:
    assert free_names("min(a, ceildiv(b, 4)) if n > 2 else 0") == {"a", "b", "n"}


def test_a_function_of_a_name_gets_the_name_not_its_value() -> None:
    calls = {"blocks": len, "first": lambda name: ord(name[0])}
    assert evaluate("2 * blocks(a) + first('k<8, 1>')", NAMES, calls=calls) == 2 + ord("k")
    assert evaluate("blocks(nothing) + b", NAMES, calls=calls) == 9
    assert free_names("blocks(nothing) + min(a, b)", calls=calls) == {"a", "b"}
    assert called_names("blocks(n) if first('k<1>') else blocks(n)", calls) == {
        ("blocks", "n"),
        ("first", "k<1>"),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("blocks(1)", "expression 'blocks(1)' does not give blocks a name; write blocks(name)"),
        ("blocks()", "expression 'blocks()' does not give blocks a name; write blocks(name)"),
        ("blocks(a, b)", "expression 'blocks(a, b)' does not give blocks a name; write blocks(name)"),
        ("blocks(a + b)", "expression 'blocks(a + b)' does not give blocks a name; write blocks(name)"),
        ("blocks(blocks(a))", "expression 'blocks(blocks(a))' does not give blocks a name; "),
        ("blocks(name=a)", "expression 'blocks(name=a)' uses 'blocks(name=a)'; allowed are "),
        ("'a'", "expression \"'a'\" uses \"'a'\"; allowed are "),
        (
            "others(a)",
            f"expression 'others(a)' calls 'others'; the functions are {', '.join(FUNCTIONS)}, blocks",
        ),
    ],
)
def test_a_function_of_a_name_takes_nothing_else(text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        evaluate(text, NAMES, calls={"blocks": len})
    assert str(caught.value).startswith(message)


FORMULAS = st.recursive(
    st.integers(0, 99).map(str),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
    max_leaves=8,
)


@given(FORMULAS)
def test_integer_arithmetic_is_exact(text: str) -> None:
    assert evaluate(text, {}) == eval(text)


@given(a=st.integers(-(10**9), 10**9), b=st.integers(1, 10**6))
def test_ceildiv_rounds_up(a: int, b: int) -> None:
    assert evaluate("ceildiv(a, b)", {"a": a, "b": b}) == math.ceil(Fraction(a, b))


@given(st.text(max_size=60))
def test_any_text_is_a_number_or_bad_input(text: str) -> None:
    try:
        value = evaluate(text, NAMES)
    except BadInput as error:
        assert "\n" not in str(error)
    else:
        assert abs(value) <= MAX_MAGNITUDE


@given(st.text(alphabet="ab01.*/+-%() ,<>=minaxcelogdv", max_size=40))
def test_any_formula_is_a_number_or_bad_input(text: str) -> None:
    try:
        assert math.isfinite(evaluate(text, NAMES))
    except BadInput as error:
        assert error.remedy


@given(st.text(alphabet="ab01+*() ,'<>blocksk", max_size=40))
def test_any_formula_with_functions_of_names_is_a_number_or_bad_input(text: str) -> None:
    calls = {"blocks": lambda name: len(name) + 1, "b": lambda name: 2}
    try:
        value = evaluate(text, NAMES, calls=calls)
    except BadInput as error:
        assert error.remedy and "\n" not in str(error)
    else:
        assert math.isfinite(value)
        assert {function for function, _ in called_names(text, calls)} <= set(calls)
        assert free_names(text, calls=calls) <= set("ablocksk")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", ["a"]),
        ("a + b - x", ["a", "b", "-x"]),
        ("a - (b - x * 2) + max(a, b + 1)", ["a", "-b", "x * 2", "max(a, b + 1)"]),
        ("3 - (a + b) // 2 - -x", ["3", "-((a + b) // 2)", "x"]),
        ("-(a + b)", ["-(a + b)"]),
        ("(a + b) * x", ["(a + b) * x"]),
    ],
)
def test_terms_add_up_to_the_whole(text: str, expected: list[str]) -> None:
    assert terms(text) == expected
    assert sum(evaluate(term, NAMES) for term in expected) == evaluate(text, NAMES)
