"""The plan's tables in solution.toml: what they may hold, and that writing and tuning keeps them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import BadInput
from swarm.launch import ELEMENTS, VALUE_TYPES, Launch, Memset, Scratch, TensorMap
from swarm.solution import Manifest, load_manifest, render_manifest, with_params

HEAD = 'language = "cuda"\nsources = ["kernel.cu"]\n'
PARAMS = '[params]\nBLOCK = 128\nSCALE = 0.5\nMODE = "fast"\n[tune]\nBLOCK = [64, 128]\n'
LAUNCH = '[[launch]]\nkernel = "rows<8>"\ngrid = ["n", 1]\nblock = ["BLOCK"]\nargs = ["x", "n:i32"]\n'
SCRATCH = '[scratch.partial]\ndtype = "float32"\nshape = ["n", 4]\n'
TENSORMAP = '[tensormap.a]\nof = "x"\ndims = ["n", 8]\nbox = [8, 8]\n'
MEMSET = '[[memset]]\ntarget = "y"\n'
WHOLE = HEAD + PARAMS + SCRATCH + TENSORMAP + LAUNCH + MEMSET


def files(text: str) -> dict[str, bytes]:
    return {"solution.toml": text.encode(), "kernel.cu": b""}


def manifest(text: str) -> Manifest:
    return load_manifest(files(text))


def test_a_plan_has_defaults() -> None:
    read = manifest(WHOLE)
    assert read.launch[0].smem == "0" and read.launch[0].repeat is None and not read.launch[0].pdl
    assert read.memset[0].before == 0 and read.memset[0].value == 0
    assert read.scratch["partial"].fill is None
    assert read.tensormap["a"].place == "param" and read.tensormap["a"].count == "1"


BROKEN = {
    "no launch": (HEAD, "launch: nothing is launched; add a [[launch]] with kernel, grid, block and args"),
    "launch for another language": (
        'language = "cuda_cpp"\nsources = ["kernel.cu"]\n' + LAUNCH,
        "launch: language cuda_cpp launches its own kernels; remove the table",
    ),
    "misspelt key": (HEAD + LAUNCH + 'gird = ["n"]\n', "launch[0].gird: unknown field; did you mean 'grid'?"),
    "no grid": (
        HEAD + LAUNCH.replace("grid", "#"),
        "launch[0].grid: required field is missing; add it",
    ),
    "grid without an end": (
        HEAD + LAUNCH.replace("[128]", "[1, 2, 3, 4]").replace('["BLOCK"]', "[1, 2, 3, 4]"),
        "launch[0].block: ",
    ),
    "broken expression": (
        HEAD + LAUNCH.replace('"n", 1', '1, "n +"'),
        "launch[0].grid[1]: expression 'n +' does not parse (invalid syntax); correct the syntax",
    ),
    "expression that is code": (
        HEAD + LAUNCH.replace('"n", 1', '"__import__(1)"'),
        "launch[0].grid[0]: expression '__import__(1)' calls '__import__'; the functions are ",
    ),
    "flag for a number": (
        HEAD + LAUNCH.replace('"n", 1', "true"),
        'launch[0].grid[0]: true is not allowed; write a number or an expression such as "2 * BLOCK"',
    ),
    "kernel that is code": (
        HEAD + LAUNCH.replace("rows<8>", "rows;x"),
        'launch[0].kernel: \'rows;x\' is not a kernel; write "name" or "name<template arguments>"',
    ),
    "kernel of ours": (
        HEAD + LAUNCH.replace("rows<8>", "swarm_spin"),
        "launch[0].kernel: 'swarm_spin' is one of our names; do not start it with swarm_",
    ),
    "argument without a type": (
        HEAD + LAUNCH.replace("n:i32", "2 * n"),
        "launch[0].args[1]: '2 * n' is neither memory nor a number with a type; "
        'write "name" or "2 * n:i32"',
    ),
    "argument of an unknown type": (
        HEAD + LAUNCH.replace("n:i32", "n:i31"),
        "launch[0].args[1]: 'n:i31': type 'i31' is unknown; did you mean 'i32'?",
    ),
    "argument that does not parse": (
        HEAD + LAUNCH.replace("n:i32", "n n:i32"),
        "launch[0].args[1]: expression 'n n' does not parse (invalid syntax); correct the syntax",
    ),
    "parameter that is none": (
        HEAD + PARAMS + LAUNCH + "params = { BLOKC = 1 }\n",
        "launch[0].params.BLOKC: no such parameter; did you mean 'BLOCK'?",
    ),
    "parameter of another type": (
        HEAD + PARAMS + LAUNCH + "params = { BLOCK = 1.5 }\n",
        "launch[0].params.BLOCK: 1.5 is not of the type of params.BLOCK; write a int",
    ),
    "index with a meaning": (
        HEAD + PARAMS + LAUNCH + 'repeat = 2\nindex = "num_sms"\n',
        "launch[0].index: 'num_sms' has a meaning already; choose another name",
    ),
    "memset before no launch": (
        HEAD + LAUNCH + MEMSET + "before = 2\n",
        "memset[0].before: 2 is not the number of a launch; use at most 1, which is after all of them",
    ),
    "memset of no byte": (HEAD + LAUNCH + MEMSET + "value = 256\n", "memset[0].value: 256 is not allowed; "),
    "scratch of no type": (
        HEAD + SCRATCH.replace("float32", "float3") + LAUNCH,
        "scratch.partial.dtype: dtype 'float3' is unknown; did you mean 'float32'?",
    ),
    "scratch for tensor maps": (
        HEAD + SCRATCH.replace("float32", "tfloat32") + LAUNCH,
        "scratch.partial.dtype: dtype 'tfloat32' is for tensor maps; use float32",
    ),
    "scratch filled with nothing": (
        HEAD + SCRATCH + "fill = nan\n" + LAUNCH,
        "scratch.partial.fill: nan is not allowed; use a number or inf",
    ),
    "box of another rank": (
        HEAD + TENSORMAP.replace("[8, 8]", "[8]") + LAUNCH,
        "tensormap.a.box: 1 values for 2 dims; give 2",
    ),
    "strides of another rank": (
        HEAD + TENSORMAP + "strides = [1, 2]\n" + LAUNCH,
        "tensormap.a.strides: 2 values for 2 dims; give 1",
    ),
    "unknown swizzle": (
        HEAD + TENSORMAP + "swizzle = 96\n" + LAUNCH,
        "tensormap.a.swizzle: 96 is not allowed; it must be 'none', 32, 64 or 128",
    ),
    "two meanings": (
        HEAD + SCRATCH.replace("partial", "a") + TENSORMAP + LAUNCH,
        "tensormap.a: 'a' is scratch memory too; rename one of them",
    ),
    "name that is none": (
        HEAD + SCRATCH.replace("partial", '"a b"') + LAUNCH,
        "scratch: the name 'a b' is not allowed; use letters, digits and '_'",
    ),
    "too many launches": (HEAD + LAUNCH * 65, "launch: 65 entries; use at most 64"),
    "binding for cuda": (
        'binding = "torch"\n' + HEAD + LAUNCH,
        "binding: language cuda has no binding; remove it",
    ),
    "entry for cuda": (
        'entry = "kernel.cu::run"\n' + HEAD + LAUNCH,
        "entry: language cuda has no entry; remove it; the [[launch]] tables say what runs",
    ),
    "only a header": (
        HEAD.replace("kernel.cu", "kernel.cuh") + LAUNCH,
        "sources: no .cu file to compile; add one",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_plan_is_one_line_with_table_key_value_and_remedy(case: str) -> None:
    text, message = BROKEN[case]
    with pytest.raises(BadInput) as caught:
        load_manifest({**files(text), "kernel.cuh": b""})
    line = str(caught.value)
    place, _, rest = line.partition(": ")
    assert place.startswith("solution/solution.toml:") and place.rpartition(":")[2].isdecimal()
    assert rest.startswith(message) and "\n" not in line
    assert len(message) < 90 or rest == message


def test_the_line_of_a_mistake_is_named() -> None:
    text = HEAD + LAUNCH + LAUNCH.replace("n:i32", "n:i31")
    with pytest.raises(BadInput, match=r"^solution/solution.toml:12: launch\[1\].args\[1\]: "):
        manifest(text)


def test_a_torch_extension_has_an_entry_and_a_plain_one_has_none() -> None:
    plain = 'language = "cuda_cpp"\nsources = ["kernel.cu"]\n'
    assert manifest(plain).entry is None
    with pytest.raises(BadInput, match="language cuda_cpp has no entry; remove it; the function is 'run'"):
        manifest('entry = "kernel.cu::run"\n' + plain)
    assert manifest('entry = "kernel.cu::run"\nbinding = "torch"\n' + plain).binding == "torch"
    with pytest.raises(BadInput, match="null is not an entry"):
        manifest('binding = "torch"\n' + plain)


def test_a_parameter_is_rewritten_beside_the_tables_of_a_plan() -> None:
    text = WHOLE + "params = { BLOCK = 256 }\n".replace("params", "# params")
    after = with_params(files(text), {"BLOCK": 64})["solution.toml"].decode()
    assert after == text.replace("BLOCK = 128", "BLOCK = 64")


def test_what_only_looks_like_parameters_is_not_rewritten() -> None:
    hidden = HEAD + PARAMS + LAUNCH + '[compile]\noptions = ["""\n[params]\nBLOCK = 3\n"""]\n'
    with pytest.raises(BadInput, match="its parameters cannot be rewritten"):
        with_params(files(hidden), {"BLOCK": 64})
    inner = HEAD + PARAMS + LAUNCH + "[launch.params]\nBLOCK = 256\n"
    after = load_manifest(with_params(files(inner), {"BLOCK": 64}))
    assert after.params["BLOCK"] == 64 and after.launch[0].params == {"BLOCK": 256}


ATOMS = st.sampled_from(
    ["n", "BLOCK", "4", "num_sms", "max_active_blocks(kernel)", "max_active_clusters('k<1>')"]
)
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.tuples(inner, st.sampled_from(["+", "*", "//", "<"]), inner).map(
        lambda t: f"({' '.join(t)})"
    ),
    max_leaves=4,
)
DIMS = st.lists(EXPRESSIONS | st.integers(0, 9), min_size=1, max_size=3).map(tuple)
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)
LAUNCHES = st.builds(
    Launch,
    kernel=st.sampled_from(["k", "k<1>", "ns::k<float, 2>"]),
    when=st.none() | EXPRESSIONS,
    params=st.just({}) | st.fixed_dictionaries({"BLOCK": st.integers(1, 99)}),
    grid=DIMS,
    block=DIMS,
    smem=EXPRESSIONS,
    cluster=st.none() | DIMS,
    cooperative=st.booleans(),
    pdl=st.booleans(),
    repeat=st.none() | EXPRESSIONS,
    index=NAMES,
    args=st.lists(NAMES | st.tuples(EXPRESSIONS, st.sampled_from(VALUE_TYPES)).map(":".join), max_size=4).map(
        tuple
    ),
)
MEMSETS = st.builds(
    Memset, target=NAMES, value=st.integers(0, 255), offset=EXPRESSIONS, bytes=st.none() | EXPRESSIONS,
    when=st.none() | EXPRESSIONS, before=st.integers(0, 1),
)  # fmt: skip
SCRATCHES = st.builds(
    Scratch, dtype=st.sampled_from(ELEMENTS), shape=DIMS, fill=st.none() | st.floats(allow_nan=False)
)


@st.composite
def tensormaps(draw: st.DrawFn) -> TensorMap:
    rank = draw(st.integers(1, 5))
    dims = st.lists(EXPRESSIONS, min_size=rank, max_size=rank).map(tuple)
    content = {
        "of": draw(NAMES),
        "dims": draw(dims),
        "box": draw(dims),
        "strides": draw(st.none() | dims.map(lambda texts: texts[1:])),
        "element_strides": draw(st.none() | dims),
        "swizzle": draw(st.sampled_from(["none", 32, 64, 128])),
        "interleave": draw(st.sampled_from(["none", 16, 32])),
        "l2": draw(st.sampled_from(["none", 64, 128, 256])),
        "fill": draw(st.sampled_from(["none", "nan"])),
        "in": draw(st.sampled_from(["param", "scratch"])),
        "count": draw(EXPRESSIONS),
        "offset": draw(EXPRESSIONS),
    }
    return TensorMap.model_validate(content)


@given(
    launches=st.lists(LAUNCHES, min_size=1, max_size=3).map(tuple),
    memsets=st.lists(MEMSETS, max_size=2).map(tuple),
    scratch=st.dictionaries(NAMES.map("s_".__add__), SCRATCHES, max_size=2),
    maps=st.dictionaries(NAMES.map("t_".__add__), tensormaps(), max_size=2),
    block=st.integers(-5, 5),
)
def test_a_plan_survives_writing_and_tuning(
    launches: tuple[Launch, ...],
    memsets: tuple[Memset, ...],
    scratch: dict[str, Scratch],
    maps: dict[str, TensorMap],
    block: int,
) -> None:
    written = Manifest.model_validate(
        {
            "language": "cuda",
            "sources": ("kernel.cu",),
            "params": {"BLOCK": 1},
            "launch": launches,
            "memset": memsets,
            "scratch": scratch,
            "tensormap": maps,
        }
    )
    text = files(render_manifest(written).decode())
    assert load_manifest(text) == written
    changed = load_manifest(with_params(text, {"BLOCK": block}))
    assert changed == written.model_copy(update={"params": {"BLOCK": block}})


LINES = st.sampled_from(
    [*WHOLE.splitlines(), "[[launch]]", "launch = 1", "[launch]", "[scratch]", "[tensormap.a.b]",
     "args = [[]]", "grid = []", "block = {}", "of = 3", "[[scratch]]", "params = 3", "[launch.params]",
     "count = -1"]
)  # fmt: skip


@given(st.lists(LINES, max_size=30))
def test_any_lines_are_a_manifest_or_one_line_of_bad_input(lines: list[str]) -> None:
    try:
        manifest(HEAD + "\n".join(lines))
    except BadInput as error:
        assert str(error).startswith("solution/solution.toml") and "\n" not in str(error)
