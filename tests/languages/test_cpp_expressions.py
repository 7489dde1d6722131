"""An expression and the C++ that is made of it come to the same number, for expressions that nobody chose."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from swarm import expressions
from swarm.errors import BadInput
from swarm.languages.cpp_expressions import HELPERS, Value, number, translate

INTEGERS = {"M": 7, "N": 4096, "zero": 0, "low": -5}
DOUBLES = {"eps": 0.125, "scale": -2.5}
NAMES = {
    **{name: Value(name, True) for name in INTEGERS},
    **{name: Value(name, False) for name in DOUBLES},
    "BLOCK": number(128),
}
VALUES = {**INTEGERS, **DOUBLES, "BLOCK": 128}
COUNT = 300
ONE = """
#include <cstdio>
template <class F> void one(F f) {
  try { std::printf("%.17g\\n", f()); }
  catch (const std::exception&) { std::printf("none\\n"); }
}
"""

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


def expression(rng: random.Random, depth: int) -> str:
    """Return an expression of every kind of node, mostly over small values."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice([*VALUES, "1", "2", "3", "17", "0.5", "-1"])

    def inner() -> str:
        return f"({expression(rng, depth - 1)})"

    match rng.randrange(12):
        case 0 | 1 | 2:
            return f"{inner()} {rng.choice(['+', '-', '*'])} {inner()}"
        case 3 | 4:
            return f"{inner()} {rng.choice(['/', '//', '%'])} {inner()}"
        case 5:
            return f"{inner()} ** {rng.choice(['2', '3', '0', '0.5'])}"
        case 6:
            return f"{rng.choice(['-', '+', 'not '])}{inner()}"
        case 7:
            signs = ["<", "<=", ">", ">=", "==", "!="]
            return f"{inner()} {rng.choice(signs)} {inner()} {rng.choice(signs)} {inner()}"
        case 8:
            word = rng.choice(["and", "or"])
            return f"{inner()} {word} {inner()} {word} {inner()}"
        case 9:
            return f"{inner()} if {inner()} else {inner()}"
        case 10:
            return f"{rng.choice(['min', 'max', 'ceildiv'])}({inner()}, {inner()})"
        case _:
            return f"{rng.choice(['abs', 'ceil', 'floor', 'log2', 'min'])}({inner()})"


def python_value(text: str) -> float | None:
    try:
        return float(expressions.evaluate(text, VALUES))
    except BadInput:
        return None


def cpp_values(texts: list[str], folder: Path) -> list[float | None]:
    cases = "\n".join(
        f"  one([&] {{ return double({translate(text, NAMES, {}, 'test').code}); }});" for text in texts
    )
    names = [f"  const int64_t {name} = {value};\n" for name, value in INTEGERS.items()]
    names += [f"  const double {name} = {value};\n" for name, value in DOUBLES.items()]
    source = f"{HELPERS.read_text()}{ONE}int main() {{\n{''.join(names)}{cases}\n}}\n"
    (folder / "all.cpp").write_text(source.replace("#pragma once\n", ""))
    subprocess.run(
        ["g++", "-std=c++17", "-O0", "-w", "-o", str(folder / "all"), str(folder / "all.cpp")], check=True
    )
    said = subprocess.run([str(folder / "all")], check=True, capture_output=True, text=True).stdout
    return [None if line == "none" else float(line) for line in said.splitlines()]


def test_any_expression_comes_to_the_same(tmp_path: Path) -> None:
    rng = random.Random(20)
    texts: list[str] = []
    while len(texts) < COUNT:
        text = expression(rng, rng.choice([1, 2, 2, 3]))
        try:
            expressions.free_names(text)
        except BadInput:
            continue
        texts.append(text)
    wanted = [python_value(text) for text in texts]
    assert sum(value is not None for value in wanted) > COUNT // 2
    for text, python, cpp in zip(texts, wanted, cpp_values(texts, tmp_path), strict=True):
        if python is not None and abs(python) < 2**52:
            assert cpp == pytest.approx(python, rel=1e-12, abs=1e-12), text


def test_what_has_no_value_has_none_in_cpp_either(tmp_path: Path) -> None:
    texts = ["1 / zero", "M // zero", "M % zero", "2 ** (0 - M)", "log2(zero)", "log2(low)"]
    assert cpp_values(texts, tmp_path) == [None] * len(texts)


def test_a_kernel_is_asked_for_by_its_name() -> None:
    asked: list[str] = []

    def blocks(kernel: str) -> Value:
        asked.append(kernel)
        return Value("blocks", True)

    calls = {"max_active_blocks": blocks}
    found = translate("2 * max_active_blocks('f<8>') + max_active_blocks(kernel)", {}, calls, "grid")
    assert found == Value("((2L * blocks) + blocks)", True)
    assert asked == ["f<8>", "kernel"]


def test_a_name_without_a_value_is_named() -> None:
    with pytest.raises(BadInput, match=r"launch\[0\]\.grid: 'K' has no value"):
        translate("K + 1", NAMES, {}, "launch[0].grid")
