from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.definition import DType, parse_definition
from swarm.errors import BadInput
from swarm.workload import parse_workloads
from tests.problem_files import REFERENCE, definition, encoded, workload


def parsed(**changes: Any) -> Any:
    return parse_definition(encoded(definition(**changes)), "definition.json")


def test_axes_resolve_in_declaration_order_with_expressions_of_expressions() -> None:
    d = parsed()
    (w,) = parse_workloads(encoded(workload()), "workload.jsonl", d)
    assert list(d.resolve(w).items()) == [("rows", 4), ("width", 64), ("half", 32), ("cells", 128)]


def test_a_kernel_learns_the_axes_that_vary_and_no_others() -> None:
    d = parsed()
    assert d.runtime_axes == ("rows", "cells")
    assert d.constants == {"width": 64, "half": 32}


def test_shapes_and_sizes_follow_from_axes() -> None:
    d = parsed(
        outputs={
            "y": {"shape": ["rows", "3"], "dtype": "float4_e2m1fn_x2"},
            "z": {"shape": [], "dtype": "int64"},
        }
    )
    axes = {"rows": 5, "width": 64}
    assert d.shape("y", axes) == (5, 3) and d.nbytes("y", axes) == 8
    assert d.shape("z", axes) == () and d.nbytes("z", axes) == 8
    assert d.shape("scale", axes) is None and d.nbytes("scale", axes) == 0
    assert d.nbytes("x", axes) == 5 * 64 * 2


def test_element_sizes_are_torchs() -> None:
    import torch

    for dtype in DType:
        if not dtype.is_packed:
            assert getattr(torch, dtype.value).itemsize * 8 == dtype.bits
    assert torch.float4_e2m1fn_x2.itemsize * 2 == 1 * 2 and DType.FLOAT4_E2M1.bits == 4


def test_the_reference_may_be_in_its_own_file() -> None:
    for empty in ({"reference": ""}, {}):
        content = {k: v for k, v in definition().items() if k != "reference"} | empty
        d = parse_definition(encoded(content), "p/definition.json", reference=REFERENCE.encode())
        assert d.reference == REFERENCE


def test_two_references_must_be_equal() -> None:
    data = encoded(definition())
    assert parse_definition(data, "p/definition.json", reference=REFERENCE.replace("\n", "\r\n").encode())
    with pytest.raises(BadInput, match=r"^p/definition.json: reference: .*differs.*; keep only one of them"):
        parse_definition(data, "p/definition.json", reference=b"def run(x): ...")


def test_a_careless_escape_in_the_reference_is_not_our_concern() -> None:
    assert parsed(reference='"""\\sum x"""\n' + REFERENCE).reference.startswith('"""\\sum')


def test_an_error_in_the_reference_names_the_file_that_holds_it() -> None:
    data = encoded(definition(reference=""))
    with pytest.raises(BadInput, match=r"^p/reference.py: line 2: "):
        parse_definition(data, "p/definition.json", reference=b"import torch\ndef run(x:\n")


def test_a_third_party_file_may_hold_more_and_it_is_noted() -> None:
    warnings: list[str] = []
    content = definition(constraints=["rows > 0"])
    content["axes"]["width"]["sise"] = 1
    d = parse_definition(encoded(content), "d.json", warnings=warnings)
    assert d == parsed()
    assert [warning.partition("; ")[0] for warning in warnings] == [
        "d.json: constraints: unknown field",
        "d.json: axes.width.sise: unknown field",
    ]


def test_a_third_party_file_may_not_be_wrong() -> None:
    with pytest.raises(BadInput, match=r"d.json: axes.width.value: -1 is not allowed"):
        content = definition(extra=1, axes={"width": {"type": "const", "value": -1}})
        parse_definition(encoded(content), "d.json", warnings=[])


def _axes(**changes: object) -> dict[str, Any]:
    return {"axes": {**definition()["axes"], **changes}}


def _inputs(**changes: object) -> dict[str, Any]:
    return {"inputs": {**definition()["inputs"], **changes}}


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "misspelt field": (
        {"op_typ": "x"},
        "definition.json: op_typ: unknown field; did you mean 'op_type'?",
    ),
    "empty name": (
        {"name": ""},
        "definition.json: name: '' is not allowed; it must have at least 1 character",
    ),
    "name is a number": ({"name": 3}, "definition.json: name: 3 is not allowed; it must be a valid string"),
    "no outputs": (
        {"outputs": {}},
        "definition.json: outputs: {} is not allowed; it must have at least 1 item",
    ),
    "misspelt axis field": (
        _axes(width={"type": "const", "valeu": 3}),
        "definition.json: axes.width.valeu: unknown field; did you mean 'value'?",
    ),
    "axis without value": (
        _axes(width={"type": "const"}),
        "definition.json: axes.width.value: required field is missing; add it",
    ),
    "negative axis": (
        _axes(width={"type": "const", "value": -2}),
        "definition.json: axes.width.value: -2 is not allowed; it must be greater than or equal to 0",
    ),
    "axis given as text": (
        _axes(width={"type": "const", "value": "64"}),
        "definition.json: axes.width.value: '64' is not allowed; it must be a valid integer",
    ),
    "unknown axis type": (
        _axes(width={"type": "constant", "value": 2}),
        "definition.json: axes.width.type: axis type 'constant' is unknown; did you mean 'const'?",
    ),
    "axis is a number": (
        _axes(width=64),
        "definition.json: axes.width: 64 is not allowed; write an object with the type const or var or expr",
    ),
    "expression of an unknown axis": (
        _axes(half={"type": "expr", "expression": "widht // 2"}),
        "definition.json: axes.half.expression: 'widht' is not an axis; did you mean 'width'?",
    ),
    "expression of a later axis": (
        {
            "axes": {"b": {"type": "expr", "expression": "c"}, "c": {"type": "expr", "expression": "width"}}
            | definition()["axes"]
        },
        "definition.json: axes.b.expression: 'c' is declared later; move it before 'b'",
    ),
    "expression with a function": (
        _axes(half={"type": "expr", "expression": "min(width, 2)"}),
        "definition.json: axes.half.expression: expression 'min(width, 2)' uses 'min(width, 2)'; "
        "allowed are numbers, axis names, + - * / // % ** and parentheses",
    ),
    "unknown dtype": (
        _inputs(x={"shape": ["rows"], "dtype": "bfloat61"}),
        "definition.json: inputs.x.dtype: dtype 'bfloat61' is unknown; did you mean 'bfloat16'?",
    ),
    "unknown dimension": (
        _inputs(x={"shape": ["rows", "wdith"], "dtype": "bfloat16"}),
        "definition.json: inputs.x.shape: 'wdith' is neither a number nor an axis; did you mean 'width'?",
    ),
    "numeric dimension not as text": (
        _inputs(x={"shape": ["rows", 64], "dtype": "bfloat16"}),
        "definition.json: inputs.x.shape[1]: 64 is not allowed; it must be a valid string",
    ),
    "no shape": (
        _inputs(x={"dtype": "bfloat16"}),
        "definition.json: inputs.x.shape: required field is missing; add it",
    ),
    "input named like an axis": (
        {"inputs": {"rows": {"shape": [], "dtype": "int32"}}},
        "definition.json: inputs.rows: 'rows' is an axis too; rename one of them",
    ),
    "output named like an input": (
        {"outputs": {"x": {"shape": ["rows"], "dtype": "int32"}}},
        "definition.json: outputs.x: 'x' is an input too; rename one of them",
    ),
    "name with a dash": (
        {"outputs": {"y-1": {"shape": ["rows"], "dtype": "int32"}}},
        "definition.json: outputs.y-1: name 'y-1' is not an identifier; use letters, digits and '_'",
    ),
    "name with a dot": (
        {"outputs": {"y.1": {"shape": ["rows"], "dtype": "int32"}}},
        "definition.json: outputs.y.1: name 'y.1' is not an identifier; use letters, digits and '_'",
    ),
    "reference does not parse": (
        {"reference": "def run(x, weight, scale)\n  pass"},
        "definition.json: reference: line 1: expected ':'; it must be valid Python",
    ),
    "reference without run": (
        {"reference": "def rum(x, weight, scale): ...\n"},
        "definition.json: reference: no top-level function 'run'; define run(x, weight, scale)",
    ),
    "reference with other arguments": (
        {"reference": "\ndef run(x, scale, weight=1): ...\n"},
        "definition.json: reference: line 2: run takes (x, scale, weight=1); "
        "it must take the inputs in order: (x, weight, scale)",
    ),
    "reference with star arguments": (
        {"reference": "def run(*args): ...\n"},
        "definition.json: reference: line 1: run takes (*args); "
        "it must take the inputs in order: (x, weight, scale)",
    ),
    "entry point missing": (
        {"custom_inputs_entrypoint": "generate"},
        "definition.json: custom_inputs_entrypoint: the reference has no top-level function 'generate'; "
        "remove it; known are run",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_definition_is_one_line_with_file_field_value_and_remedy(case: str) -> None:
    changes, message = BROKEN[case]
    with pytest.raises(BadInput) as caught:
        parsed(**changes)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b'{"name": "a",\n "axes": {,}}',
            "d.json:2: not JSON: Expecting property name enclosed in double quotes; correct the syntax there",
        ),
        (b'{"name": "a", "name": "b"}', "d.json: not JSON: key 'name' appears twice; correct it"),
        (b'{"name": NaN}', "d.json: not JSON: NaN is not a JSON number; correct it"),
        (b'{"name":\n "\xff"}', "d.json:2: byte 0xff is not UTF-8; save the file as UTF-8"),
        (b"", "d.json:1: not JSON: Expecting value; correct the syntax there"),
        (b"[]", "d.json: [] is not allowed; it must be an object"),
    ],
)
def test_a_file_that_is_no_definition_is_one_line(data: bytes, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_definition(data, "d.json")
    assert str(caught.value) == message


@given(rows=st.integers(0, 10**6), width=st.integers(1, 10**6))
def test_constants_are_what_every_workload_resolves_to(rows: int, width: int) -> None:
    d = parsed(axes={**definition()["axes"], "width": {"type": "const", "value": width}})
    (w,) = parse_workloads(encoded(workload(axes={"rows": rows})), "w", d)
    axes = d.resolve(w)
    assert {name: axes[name] for name in d.constants} == d.constants
    assert set(d.constants) | set(d.runtime_axes) == set(axes)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from([*definition(), "hf_id", "description", "custom_inputs_entrypoint", "oops"])


@given(field=FIELDS, value=JSON)
def test_whatever_a_field_holds_is_accepted_or_bad_input(field: str, value: object) -> None:
    try:
        parsed(**{field: value})
    except BadInput as error:
        assert str(error).startswith("definition.json: ") and "\n" not in str(error)


@given(axis=JSON, spec=JSON)
def test_whatever_an_axis_or_tensor_is_it_is_accepted_or_bad_input(axis: object, spec: object) -> None:
    for changes in (_axes(width=axis), _inputs(x=spec)):
        try:
            parsed(**changes)
        except BadInput as error:
            assert str(error).startswith("definition.json: ")


def test_a_dimension_of_thousands_of_digits_is_named() -> None:
    with pytest.raises(BadInput, match=r"^definition.json: outputs.y.shape: .* is too large; use at most 18"):
        parsed(outputs={"y": {"shape": ["9" * 5000], "dtype": "int8"}})
