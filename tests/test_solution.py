from __future__ import annotations

from pathlib import Path

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import BadInput
from swarm.layout import find_root
from swarm.protocol import load_protocol
from swarm.solution import (
    Compile,
    Language,
    Manifest,
    load_manifest,
    render_manifest,
    validate_tree,
    with_params,
)
from tests.problem_files import KERNEL, MANIFEST, solution_files

PROTOCOL = load_protocol(find_root(Path(__file__).parent).coordination.read_text())
TORCH = 'language = "pytorch"\nsources = ["kernel.py"]\nentry = "kernel.py::run"\n'
TORCH_KERNEL = (
    "import torch\nfrom math import sqrt\n\ndef run(x, y):\n    torch.relu(x, out=y)  # open(sesame)\n"
)


def torch_files(kernel: str = TORCH_KERNEL, manifest: str = TORCH) -> dict[str, bytes]:
    return {"solution.toml": manifest.encode(), "kernel.py": kernel.encode()}


def test_both_languages_have_valid_solutions() -> None:
    validate_tree(solution_files(), PROTOCOL)
    validate_tree(torch_files(), PROTOCOL)


def test_python_sources_take_their_parameters_from_a_module_that_is_made_for_them() -> None:
    manifest = TORCH + "[params]\nBLOCK = 64\n"
    validate_tree(torch_files("from params import BLOCK\n" + TORCH_KERNEL, manifest), PROTOCOL)


def test_a_header_of_the_tree_may_be_included_from_beside_it() -> None:
    validate_tree(
        solution_files(
            MANIFEST.replace('["kernel.cpp"]', '["kernel.cpp", "lib/a.h", "lib/b.h"]'),
            '#include "lib/a.h"\n' + KERNEL,
            **{"lib/a.h": '#include "b.h"\n', "lib/b.h": "#pragma once\n"},
        ),
        PROTOCOL,
    )


BROKEN_MANIFESTS = {
    "syntax": (
        "language = cpp\n",
        "solution/solution.toml:1: not TOML: Invalid value; correct the syntax there",
    ),
    "misspelt key": (
        MANIFEST.replace("sources", "source"),
        "solution/solution.toml:2: source: unknown field; did you mean 'sources'?",
    ),
    "unknown table": (
        MANIFEST + "\n[[lunch]]\n",
        "solution/solution.toml:15: lunch: unknown field; did you mean 'launch'?",
    ),
    "unknown language": (
        MANIFEST.replace('"cpp"', '"c++"'),
        "solution/solution.toml:1: language: language 'c++' is unknown; remove it; known are cpp, pytorch, "
        "cuda, cuda_cpp, triton, cute_dsl",
    ),
    "no sources": (
        MANIFEST.replace('["kernel.cpp"]', "[]"),
        "solution/solution.toml:2: sources: [] is not allowed; it must have at least 1 item",
    ),
    "missing source": (
        MANIFEST.replace('["kernel.cpp"]', '["kernal.cpp"]'),
        "solution/solution.toml:2: sources: source 'kernal.cpp' is not in the tree; "
        "did you mean 'kernel.cpp'?",
    ),
    "source of another language": (
        MANIFEST.replace('["kernel.cpp"]', '["kernel.cu"]'),
        "solution/solution.toml:2: sources: 'kernel.cu' is not a cpp file; "
        "its name must end in .cpp or .h or .hpp",
    ),
    "only a header": (
        MANIFEST.replace('["kernel.cpp"]', '["kernel.h"]'),
        "solution/solution.toml:2: sources: no .cpp file to compile; add one",
    ),
    "entry for cpp": (
        'entry = "kernel.cpp::run"\n' + MANIFEST,
        "solution/solution.toml:1: entry: language cpp has no entry; remove it; the function is 'run'",
    ),
    "entry missing for pytorch": (
        'language = "pytorch"\nsources = ["kernel.py"]\n',
        "solution/solution.toml:1: entry: null is not an entry; write kernel.py::run or the like",
    ),
    "options for pytorch": (
        TORCH + '[compile]\noptions = ["-O3"]\n',
        "solution/solution.toml:5: compile.options: language pytorch has no compiler; remove them",
    ),
    "option not allowed": (
        MANIFEST.replace("-ffast-math", "-fplugin=evil"),
        "solution/solution.toml:5: compile.options: option '-fplugin=evil' is not allowed; ",
    ),
    "parameter in lower case": (
        MANIFEST.replace("UNROLL", "unroll"),
        "solution/solution.toml:9: params.unroll: the name is not allowed; "
        "use upper-case letters, digits and '_'",
    ),
    "parameter of ours": (
        MANIFEST.replace("UNROLL", "SWARM_CORES"),
        "solution/solution.toml:9: params.SWARM_CORES: the name is not allowed; "
        "use upper-case letters, digits and '_'",
    ),
    "parameter that is code": (
        MANIFEST.replace('"plain"', '"1; system(0)"'),
        "solution/solution.toml:10: params.MODE: '1; system(0)' is not allowed; "
        "a text parameter is one word of letters, digits and '_'",
    ),
    "parameter that is a list": (
        MANIFEST.replace("UNROLL = 1", "UNROLL = [1]"),
        "solution/solution.toml:9: params.UNROLL: [1] is not allowed; a parameter is a number or a word",
    ),
    "parameter that is infinite": (
        MANIFEST.replace("UNROLL = 1", "UNROLL = inf"),
        "solution/solution.toml:9: params.UNROLL: inf is not allowed; a parameter is finite",
    ),
    "tuning of no parameter": (
        MANIFEST + "BLOKC = [1]\n",
        "solution/solution.toml:14: tune.BLOKC: no such parameter; did you mean 'BLOCK'?",
    ),
    "tuning without a choice": (
        MANIFEST + "UNROLL = []\n",
        "solution/solution.toml:14: tune.UNROLL: [] is not a choice; list distinct values",
    ),
    "tuning with values of another type": (
        MANIFEST + 'UNROLL = [1, "two"]\n',
        "solution/solution.toml:14: tune.UNROLL: 'two' is not of the type of params.UNROLL; write int values",
    ),
}


@pytest.mark.parametrize("case", BROKEN_MANIFESTS)
def test_a_broken_manifest_is_one_line_with_file_line_value_and_remedy(case: str) -> None:
    manifest, message = BROKEN_MANIFESTS[case]
    others = {name: "" for name in ("kernel.h", "kernel.cu", "kernel.py") if name in manifest}
    with pytest.raises(BadInput) as caught:
        validate_tree(solution_files(manifest, **others), PROTOCOL)
    line = str(caught.value)
    assert line.startswith(message) and "\n" not in line
    assert message.endswith("; ") or line == message


BROKEN_TREES = {
    "no manifest": ({"kernel.cpp": b""}, "solution/: no solution.toml; add one with language and sources"),
    "unlisted file": (
        solution_files(**{"old.cpp": ""}),
        "solution/old.cpp: not among the sources; list it in solution.toml, or delete it",
    ),
    "escaping path": (solution_files(**{"../x.cpp": ""}), "solution/: path '../x.cpp' is not allowed; "),
    "absolute path": (solution_files(**{"/etc/x.cpp": ""}), "solution/: path '/etc/x.cpp' is not allowed; "),
    "hidden file": (
        solution_files(**{".gitattributes": ""}),
        "solution/: path '.gitattributes' is not allowed; ",
    ),
    "option as a path": (solution_files(**{"-o.cpp": ""}), "solution/: path '-o.cpp' is not allowed; "),
    "path with a line break": (solution_files(**{"a\nb": ""}), "solution/: path 'a\\nb' is not allowed; "),
    "long path": (solution_files(**{"a" * 200: ""}), "solution/: path 'aaa"),
    "our header": (
        solution_files(**{"problem.h": ""}),
        "solution/problem.h: problem.h is ours; delete it; it is generated",
    ),
    "our module": (
        {**torch_files(), "params.py": b""},
        "solution/params.py: params.py is ours; delete it; it is generated",
    ),
    "names that differ in case": (
        solution_files(**{"Kernel.cpp": ""}),
        "solution/Kernel.cpp: differs from 'kernel.cpp' only in case; rename one",
    ),
    "module of python": (
        {**torch_files(), "random.py": b""},
        "solution/random.py: hides the module 'random'; rename it, e.g. kernel.py",
    ),
    "module of ours": (
        {**torch_files(), "torch/x.py": b""},
        "solution/torch/x.py: hides the module 'torch'; rename it, e.g. kernel.py",
    ),
    "too many files": (
        solution_files(**{f"a{n}.cpp": "" for n in range(20)}),
        "solution/: 22 files; use at most 16",
    ),
    "too large a file": (
        solution_files(kernel="/" * 300_000),
        "solution/kernel.cpp: 300000 bytes; use at most 262144",
    ),
    "too large in all": (
        solution_files(**{f"a{n}.cpp": "/" * 200_000 for n in range(6)}),
        "solution/: 1200461 bytes in all; use at most 1048576",
    ),
    "binary": (
        {**solution_files(), "kernel.cpp": b"\n\x7fELF\xff"},
        "solution/kernel.cpp:2: byte 0xff is not UTF-8; save the file as UTF-8",
    ),
    "zero byte": (
        {**solution_files(), "kernel.cpp": b"\0"},
        "solution/kernel.cpp: holds a zero byte; sources are text",
    ),
}


@pytest.mark.parametrize("case", BROKEN_TREES)
def test_a_broken_tree_is_one_line_with_file_value_and_remedy(case: str) -> None:
    files, message = BROKEN_TREES[case]
    with pytest.raises(BadInput) as caught:
        validate_tree(files, PROTOCOL)
    line = str(caught.value)
    assert line.startswith(message) and "\n" not in line
    assert len(message) < 60 or line == message


@pytest.mark.parametrize("parameter", ["BLOCK", "UNROLL", "MODE"])
def test_rewriting_a_parameter_changes_its_line_only(parameter: str) -> None:
    value: int | str = "fancy" if parameter == "MODE" else 256
    before, after = (
        f["solution.toml"].decode().splitlines()
        for f in (solution_files(), with_params(solution_files(), {parameter: value}))
    )
    changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert len(changed) == 1
    assert tomli.loads(changed[0][1]) == {parameter: value}
    assert changed[0][0].partition("#")[2] == changed[0][1].partition("#")[2]


def test_the_same_parameters_give_the_same_bytes() -> None:
    files = solution_files()
    assert with_params(files, load_manifest(files).params) == files


def test_an_unknown_parameter_is_not_invented() -> None:
    with pytest.raises(BadInput, match=r"solution.toml: no parameter 'BLOKC'; did you mean 'BLOCK'\?"):
        with_params(solution_files(), {"BLOKC": 1})


@pytest.mark.parametrize("params", ["params = {BLOCK = 64}\n", "params.BLOCK = 64\n"])
def test_parameters_that_cannot_be_rewritten_are_an_error_not_a_silent_no_op(params: str) -> None:
    files = solution_files('language = "cpp"\nsources = ["kernel.cpp"]\n' + params)
    with pytest.raises(BadInput, match=r"cannot be rewritten; write a \[params\] table"):
        with_params(files, {"BLOCK": 128})


NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: not name.startswith("SWARM_")
)
VALUES = (
    st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
)


@given(
    params=st.dictionaries(NAMES, VALUES, max_size=5),
    options=st.lists(st.sampled_from(PROTOCOL.rules.compile_options["cpp"]), unique=True, max_size=3),
    data=st.data(),
)
def test_a_manifest_survives_writing_and_any_change_of_its_parameters(
    params: dict[str, int | float | str], options: list[str], data: st.DataObject
) -> None:
    manifest = Manifest(
        language=Language.CPP,
        sources=("kernel.cpp",),
        compile=Compile(options=tuple(options)),
        params=params,
        tune={name: (value,) for name, value in params.items()},
    )
    files = {"solution.toml": render_manifest(manifest), "kernel.cpp": b""}
    assert load_manifest(files) == manifest
    changes = {name: data.draw(VALUES) for name in params}
    kept = {name: value for name, value in changes.items() if type(value) is type(params[name])}
    assert load_manifest(with_params(files, kept)).params == {**params, **kept}


@given(st.text(max_size=200))
def test_any_manifest_is_accepted_or_bad_input(text: str) -> None:
    try:
        load_manifest(solution_files(text))
    except BadInput as error:
        assert str(error).startswith("solution/solution.toml")
