from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.definition import Definition, parse_definition
from swarm.errors import BadInput
from swarm.workload import Workload, parse_workloads
from tests.problem_files import REFERENCE, definition, encoded, workload

PLAIN = parse_definition(encoded(definition()), "definition.json")
CUSTOM = parse_definition(
    encoded(
        definition(
            reference=REFERENCE + "\ndef make(axes_and_scalars, device): ...\n",
            custom_inputs_entrypoint="make",
        )
    ),
    "definition.json",
)


def parsed(content: dict[str, Any], d: Definition = PLAIN) -> Workload:
    (result,) = parse_workloads(b"\n" + encoded(content) + b"\n\n", "w.jsonl", d)
    return result


def _inputs(**changes: object) -> dict[str, Any]:
    return workload(inputs={**workload()["inputs"], **changes})


def test_scalars_keep_their_type() -> None:
    for value in (1, 1.0, 0.25):
        found = parsed(_inputs(scale={"type": "scalar", "value": value})).scalars["scale"]
        assert found == value and type(found) is type(value)


def test_all_inputs_may_be_custom() -> None:
    inputs = {name: {"type": "custom"} for name in workload()["inputs"]}
    assert parsed(workload(inputs=inputs), CUSTOM).is_custom
    assert not parsed(workload(), CUSTOM).is_custom


def test_a_scalar_may_be_random() -> None:
    assert parsed(_inputs(scale={"type": "random"})).scalars == {}


def test_the_misspelt_ratio_of_the_data_set_is_noted_and_ignored() -> None:
    warnings: list[str] = []
    data = encoded(workload(tolerance={"max_atol": 0.1, "required_match_ratio": 0.98}))
    (w,) = parse_workloads(data, "w.jsonl", PLAIN, warnings=warnings)
    assert w.tolerance is not None and w.tolerance.required_matched_ratio is None
    assert warnings == [
        "w.jsonl:1: tolerance.required_match_ratio: unknown field; did you mean 'required_matched_ratio'?"
    ]


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "misspelt field": (
        workload(tolerence={}),
        "w.jsonl:2: tolerence: unknown field; did you mean 'tolerance'?",
    ),
    "misspelt tolerance": (
        workload(tolerance={"required_match_ratio": 0.98}),
        "w.jsonl:2: tolerance.required_match_ratio: unknown field; did you mean 'required_matched_ratio'?",
    ),
    "negative tolerance": (
        workload(tolerance={"max_rtol": -1}),
        "w.jsonl:2: tolerance.max_rtol: -1 is not allowed; it must be greater than or equal to 0",
    ),
    "ratio above one": (
        workload(tolerance={"required_matched_ratio": 98}),
        "w.jsonl:2: tolerance.required_matched_ratio: 98 is not allowed; it must be less than or equal to 1",
    ),
    "axis missing": (workload(axes={}), "w.jsonl:2: axes: var axis 'rows' is missing; add it"),
    "axis misspelt": (
        workload(axes={"rows": 1, "row": 2}),
        "w.jsonl:2: axes: the definition has no var axis 'row'; did you mean 'rows'?",
    ),
    "const axis given": (
        workload(axes={"rows": 1, "width": 64}),
        "w.jsonl:2: axes: the definition has no var axis 'width'; remove it; known are rows",
    ),
    "negative axis": (
        workload(axes={"rows": -1}),
        "w.jsonl:2: axes.rows: -1 is not allowed; it must be greater than or equal to 0",
    ),
    "fractional axis": (
        workload(axes={"rows": 1.5}),
        "w.jsonl:2: axes.rows: 1.5 is not allowed; it must be a valid integer",
    ),
    "input missing": (
        workload(inputs={"x": {"type": "random"}, "weight": {"type": "random"}}),
        "w.jsonl:2: inputs: input 'scale' is missing; add it",
    ),
    "input unknown": (
        _inputs(wieght={"type": "random"}),
        "w.jsonl:2: inputs: the definition has no input 'wieght'; did you mean 'weight'?",
    ),
    "input type unknown": (
        _inputs(x={"type": "randn"}),
        "w.jsonl:2: inputs.x.type: input type 'randn' is unknown; did you mean 'random'?",
    ),
    "scalar for a tensor": (
        _inputs(x={"type": "scalar", "value": 1}),
        "w.jsonl:2: inputs.x: a scalar is given for a tensor; use random, safetensors or custom",
    ),
    "tensor for a scalar": (
        _inputs(scale={"type": "safetensors", "path": "a", "tensor_key": "b"}),
        "w.jsonl:2: inputs.scale: a tensor is given for a scalar; use scalar",
    ),
    "text for a scalar": (
        _inputs(scale={"type": "scalar", "value": "1"}),
        "w.jsonl:2: inputs.scale.value: '1' is not a scalar; write a number, true or false",
    ),
    "truth for a float": (
        _inputs(scale={"type": "scalar", "value": True}),
        "w.jsonl:2: inputs.scale: true is not a number; the input is float32",
    ),
    "path out of the folder": (
        _inputs(x={"type": "safetensors", "path": "../x", "tensor_key": "b"}),
        "w.jsonl:2: inputs.x: path '../x' leaves the folder; use a relative path without '..'",
    ),
    "some inputs custom": (
        _inputs(x={"type": "custom"}),
        "w.jsonl:2: inputs.weight: some inputs are custom, this one is not; make all custom, or none",
    ),
    "custom without entry point": (
        workload(inputs={name: {"type": "custom"} for name in workload()["inputs"]}),
        "w.jsonl:2: inputs.x: it is custom, but the definition has no custom_inputs_entrypoint; "
        "name the function that makes it",
    ),
    "no uuid": (workload(uuid=""), "w.jsonl:2: uuid: '' is not allowed; it must have at least 1 character"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_workload_is_one_line_with_file_line_field_and_remedy(case: str) -> None:
    content, message = BROKEN[case]
    with pytest.raises(BadInput) as caught:
        parsed(content)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "w.jsonl: no workload; write one JSON object per line"),
        (b"{}\n", "w.jsonl:1: uuid: required field is missing; add it"),
        (
            b"\n{",
            "w.jsonl:2: not JSON: Expecting property name enclosed in double quotes; "
            "write one JSON object per line",
        ),
        (b"[1]", "w.jsonl:1: [1] is not allowed; it must be an object"),
        (
            encoded(workload()) + b"\n" + encoded(workload()),
            "w.jsonl:2: uuid 'w1' appears twice; give each workload its own",
        ),
    ],
)
def test_a_broken_file_names_its_line(data: bytes, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_workloads(data, "w.jsonl", PLAIN)
    assert str(caught.value) == message


def test_an_axis_without_a_size_is_reported_with_the_workload_that_has_it() -> None:
    axes = {**definition()["axes"], "half": {"type": "expr", "expression": "width // rows"}}
    d = parse_definition(encoded(definition(axes=axes)), "definition.json")
    with pytest.raises(BadInput, match=r"^w.jsonl:1: axis half: expression 'width // rows' divides by zero"):
        parse_workloads(encoded(workload(axes={"rows": 0})), "w.jsonl", d)


@given(
    st.dictionaries(
        st.sampled_from([*workload(), "tolerance", "x"]), st.none() | st.integers() | st.text(max_size=4)
    )
)
def test_whatever_a_line_holds_is_accepted_or_bad_input(changes: dict[str, object]) -> None:
    try:
        parsed(workload(**changes))
    except BadInput as error:
        assert str(error).startswith("w.jsonl:2")


@pytest.mark.parametrize(
    ("dtype", "value", "what"),
    [
        ("int8", 128, "128 does not fit; the input is int8"),
        ("int64", 2**63, f"{2**63} does not fit"),
        ("int32", 0.5, "0.5 is not an integer"),
        ("int32", True, "true is not a number"),
        ("float32", 10**400, "is too large; the input is float32"),
        ("bool", 1, "1 is not a boolean; write true or false"),
    ],
)
def test_a_scalar_that_its_type_cannot_hold_is_named(dtype: str, value: object, what: str) -> None:
    inputs = {**definition()["inputs"], "scale": {"shape": None, "dtype": dtype}}
    d = parse_definition(encoded(definition(inputs=inputs)), "definition.json")
    with pytest.raises(BadInput, match=rf"^w.jsonl:2: inputs.scale: .*{what}"):
        parsed(_inputs(scale={"type": "scalar", "value": value}), d)


def test_an_axis_that_no_kernel_could_be_told_is_named() -> None:
    with pytest.raises(BadInput, match=rf"^w.jsonl:2: axes.rows: {2**63} is not allowed; .*less than"):
        parsed(workload(axes={"rows": 2**63}))
