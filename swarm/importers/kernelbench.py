"""KernelBench: Python files with a class Model, get_inputs and get_init_inputs.

A module becomes a function of its inputs and its parameters, and both are drawn afresh for every call, as the
file draws them. Parameters that are one number everywhere (a norm's weight, a bias) get some noise: else
nobody had to read them. The module runs as the file leaves it, in training mode, as KernelBench runs it.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from swarm.definition import DType, parse_definition
from swarm.errors import BadInput
from swarm.foreign import one_line, read_linked
from swarm.importers.draft import Draft, slug
from swarm.importers.entries import MAX_BYTES, Entry, Source, read, walk
from swarm.schema import Flag, Frozen, Int, decode, json_fields, parse, read_python
from swarm.workload import CustomInput, InputDescriptor, Tolerance, Workload

if TYPE_CHECKING:
    from swarm.judge.reference import References

NEEDED = ("Model", "get_inputs", "get_init_inputs")
WRITTEN = ("run", "make_inputs", "imported_module", "INPUTS", "PARAMETERS")
NAMES = uuid.UUID("6d8f8a70-3d8b-5d0c-9d0e-0f4b8a3f2c11")
"""What the uuid of a file's one workload is derived from, with its place."""
TOLERANCES = {DType.FLOAT64: 1e-4, DType.FLOAT32: 1e-4}
OTHER_TOLERANCE = 1e-2
"""KernelBench's, by the type of what is returned; every element counts."""
SCALARS = {"float": DType.FLOAT32, "int": DType.INT64, "bool": DType.BOOL}
NOISE = 0.1


class Fact(Frozen):
    """One tensor, or a number where there is no shape."""

    name: str = Field(max_length=200)
    shape: tuple[Int, ...] | None
    dtype: str


class Facts(Frozen):
    """What `swarm.judge.modules` found out; a stranger's code had a hand in it."""

    inputs: tuple[Fact, ...]
    parameters: tuple[Fact, ...]
    outputs: tuple[Fact, ...] = Field(min_length=1)
    draws: str
    left: tuple[str, ...]
    changing: str
    is_shapes_only: Flag


def find(source: Path, references: Callable[[], References]) -> Source | None:
    """Return the Python files at or below `source`; None if none of them is KernelBench's."""
    paths = [source] if source.is_file() and source.suffix == ".py" else []
    paths += walk(source, "*.py") if source.is_dir() else []
    if not any(NEEDED[1].encode() in (read_linked(path, MAX_BYTES) or b"") for path in paths):
        return None
    return Source("KernelBench", [_entry(path, source, references) for path in paths])


def _entry(path: Path, source: Path, references: Callable[[], References]) -> Entry:
    where = path.relative_to(source).as_posix() if path != source else path.name
    level = path.resolve().parent.name
    place = f"{level}/{path.name}" if re.fullmatch(r"level\d+", level) else path.name

    def draft() -> Draft:
        text = decode(read(path, where), where)
        _check(text, where)
        return _draft(text, where, place, _facts(text, where, references))

    return Entry(where, draft)


def _check(text: str, where: str) -> None:
    try:
        tree = read_python(text)
    except SyntaxError as error:
        raise BadInput(
            f"not Python: {error.msg}", where=f"{where}:{error.lineno or 1}", remedy="correct it"
        ) from None
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assigned = {
        n.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for n in node.targets
        if isinstance(n, ast.Name)
    }
    for name in NEEDED:
        if name not in defined:
            raise BadInput(
                f"defines no {name} at its top", where=where, remedy="add it, or leave the file out"
            )
    for name in WRITTEN:
        if name in defined | assigned:
            raise BadInput(
                f"defines {name}, which an import writes below it", where=where, remedy="rename it"
            )


def _facts(text: str, where: str, references: Callable[[], References]) -> Facts:
    """Have the module described in the sandbox."""
    from swarm.judge.reference import InvalidReference  # torch: only where something must run

    try:
        said = references().describe_module(text, where)
    except InvalidReference as error:
        raise BadInput(
            f"could not be tried out: {error}", where=where, remedy="correct it, or leave it out"
        ) from None
    facts = parse(Facts, said, json_fields(where))
    if facts.draws:
        raise BadInput(
            f"forward draws random numbers ({one_line(facts.draws, 60)})",
            where=where,
            remedy="there is no one right answer; have it use no dropout",
        )
    if facts.changing:
        raise BadInput(
            f"{one_line(facts.changing, 60)} is drawn by the constructor, but is no parameter",
            where=where,
            remedy="make it a torch.nn.Parameter, so that a solution can be given it",
        )
    return facts


def _draft(text: str, where: str, place: str, facts: Facts) -> Draft:
    given = _named(facts.inputs, set())
    held = _named(facts.parameters, set(given))
    returned = (
        _named(facts.outputs, {*given, *held}) if len(facts.outputs) > 1 else {"output": facts.outputs[0]}
    )
    raw = {
        "name": place.removesuffix(".py"),
        "op_type": None,
        "description": _description(text),
        "axes": {},
        "inputs": {name: _spec(fact) for name, fact in {**given, **held}.items()},
        "outputs": {name: _spec(fact) for name, fact in returned.items()},
        "reference": _reference(text, given, held, facts),
        "custom_inputs_entrypoint": "make_inputs",
    }
    definition = parse_definition(json.dumps(raw).encode(), where)
    identifier = str(uuid.uuid5(NAMES, place))
    inputs: dict[str, InputDescriptor] = {name: CustomInput(type="custom") for name in definition.inputs}
    atol = max(TOLERANCES.get(spec.dtype, OTHER_TOLERANCE) for spec in definition.outputs.values())
    tolerance = Tolerance(max_atol=atol, max_rtol=atol, required_matched_ratio=1.0)
    return Draft(
        slug(place.removesuffix(".py")),
        f"KernelBench {place}",
        definition,
        [Workload(uuid=identifier, axes={}, inputs=inputs)],
        tolerance,
    )


def _named(facts: tuple[Fact, ...], taken: set[str]) -> dict[str, Fact]:
    """Give each fact an identifier that is not taken: `ln_1.weight` becomes `ln_1_weight`."""
    named: dict[str, Fact] = {}
    for fact in facts:
        name = re.sub(r"\W", "_", fact.name, flags=re.ASCII)
        name = name if name.isidentifier() and not keyword.iskeyword(name) else f"p_{name}"
        while name in taken or name in named:
            name += "_"
        named[name] = fact
    return named


def _spec(fact: Fact) -> dict[str, object]:
    if fact.shape is None:
        return {"shape": None, "dtype": SCALARS.get(fact.dtype, fact.dtype)}
    return {"shape": [str(size) for size in fact.shape], "dtype": fact.dtype}


def _description(text: str) -> str | None:
    """Return the first line of Model's docstring."""
    for node in read_python(text).body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            said = (ast.get_docstring(node) or "").strip().split("\n")[0]
            return one_line(said, 200) or None
    return None


def _reference(text: str, given: dict[str, Fact], held: dict[str, Fact], facts: Facts) -> str:
    """Return the file's text with the functions that a problem needs below it."""
    return text.rstrip() + "\n\n\n" + "\n".join(_below(given, held, facts)) + "\n"


def _below(given: dict[str, Fact], held: dict[str, Fact], facts: Facts) -> Iterator[str]:
    tensors = [name for name, fact in given.items() if fact.shape is not None] or list(held)
    is_empty = facts.is_shapes_only and not facts.left  # nothing of the module itself is ever read
    kept_on = '"meta"' if is_empty else '"cpu"'
    used_on = f"{tensors[0]}.device.type" if tensors and not is_empty else kept_on
    names, arguments = ("".join(f"{name}, " for name in group).strip() for group in (held, given))
    yield "# What follows was written by `swarm problems import`."
    yield "import functools"
    yield ""
    yield "import torch"
    yield ""
    yield f"INPUTS = {tuple(given)!r}"
    yield "PARAMETERS = {"
    yield from (f"    {fact.name!r}: {name!r}," for name, fact in held.items())
    yield "}"
    yield ""
    yield ""
    yield "@functools.cache"
    yield "def imported_module(device):"
    yield '    """Return the module; its parameters are never used, `run` brings its own."""'
    yield "    with torch.device(device):"
    yield "        return Model(*get_init_inputs())"
    yield ""
    yield ""
    yield f"imported_module({kept_on})  # now, while tensors are real: `run` may be called where they are not"
    yield ""
    yield ""
    yield f"def run({', '.join((*given, *held))}):"
    yield f"    state = dict(zip(PARAMETERS, ({names})))"
    yield f"    return torch.func.functional_call(imported_module({used_on}), state, ({arguments}))"
    yield ""
    yield ""
    yield "def make_inputs(axes_and_scalars, device):"
    yield "    with torch.device(device):"
    yield "        given, module = get_inputs(), Model(*get_init_inputs())"
    yield "    made = dict(zip(INPUTS, given))"
    yield "    for place, value in module.named_parameters():"
    yield "        value = value.detach()"
    yield "        if value.numel() and (value == value.flatten()[0]).all():"
    yield f"            value = value + {NOISE} * torch.randn_like(value)"
    yield "        made[PARAMETERS[place]] = value"
    yield "    return made"
