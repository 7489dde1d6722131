from __future__ import annotations

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import BadInput
from swarm.schema import Frozen, Int, parse, read_json, read_toml, toml_fields, toml_line

TEXT = """\
# comment = 1
top = 1
[table]
key = 2
inner.deep = 3

[[step]]
name = "a"
[[step]]
name = "b"
args = [
  1,
]
[table.sub]
"quoted" = 4
"""


@pytest.mark.parametrize(
    ("loc", "line"),
    [
        (("top",), 2),
        (("table",), 3),
        (("table", "key"), 4),
        (("table", "missing"), 3),
        (("table", "inner", "deep"), 5),
        (("step", 0, "name"), 8),
        (("step", 1, "name"), 10),
        (("step", 1, "args", 0), 11),
        (("table", "sub", "quoted"), 15),
        ((), 1),
    ],
)
def test_the_line_of_a_toml_key_is_found(loc: tuple[int | str, ...], line: int) -> None:
    tomli.loads(TEXT)
    assert toml_line(TEXT, loc) == line


@given(st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), st.integers(), min_size=1, max_size=8))
def test_the_line_of_any_key_of_a_flat_file_is_found(content: dict[str, int]) -> None:
    text = "".join(f"{key} = {value}\n" for key, value in content.items())
    assert [toml_line(text, (key,)) for key in content] == list(range(1, len(content) + 1))


def test_a_syntax_error_names_the_line_of_the_file_that_the_text_is_part_of() -> None:
    with pytest.raises(BadInput, match=r"^C\.md:41: not TOML: .*; correct the syntax there$"):
        read_toml("a = 1\nb = [1,,2]\n", "C.md", first_line=40)
    with pytest.raises(BadInput, match=r"^C\.md:41: not TOML: "):
        read_toml("a = 1\nb = ", "C.md", first_line=40)


class _Point(Frozen):
    x: Int
    y: Int = 0


def test_the_first_of_several_mistakes_is_reported_with_its_line() -> None:
    text = "x = true\nz = 1\n"
    with pytest.raises(BadInput) as caught:
        parse(_Point, tomli.loads("x = true\n"), toml_fields(text, "p.toml"))
    assert str(caught.value) == "p.toml:1: x: true is not allowed; it must be a valid integer"
    with pytest.raises(BadInput) as caught:
        parse(_Point, tomli.loads(text), toml_fields(text, "p.toml"))
    assert str(caught.value) == "p.toml:2: z: unknown field; remove it; known are x, y"


def test_a_long_value_is_cut_and_stays_on_one_line() -> None:
    with pytest.raises(BadInput) as caught:
        parse(_Point, {"x": "long\nline " * 100}, toml_fields("", "p.toml"))
    assert len(str(caught.value)) < 200 and "\n" not in str(caught.value)


def test_a_model_cannot_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        _Point(x=1).x = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"n": 1e999}', "the number 1e999 is too large"),
        ('{"n": 1' + "0" * 5000 + "}", "4300"),
        ("[" * 100_000, "recursion"),
    ],
    ids=["float", "integer", "nesting"],
)
def test_json_that_python_cannot_hold_is_bad_input(text: str, what: str) -> None:
    with pytest.raises(BadInput, match=f"^d.json: not JSON: .*{what}"):
        read_json(text.encode(), "d.json")


@pytest.mark.parametrize("value", ["1" + "0" * 5000, "[" * 100_000], ids=["integer", "nesting"])
def test_toml_that_python_cannot_hold_is_bad_input(value: str) -> None:
    with pytest.raises(BadInput, match=r"^s.toml:7: not TOML: "):
        read_toml(f"n = {value}", "s.toml", 7)
