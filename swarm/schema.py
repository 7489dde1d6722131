"""Turn JSON and TOML that somebody wrote into frozen models, or into one line that says what is wrong.

The models of definition, workload, settings, solution, protocol and config build on `Frozen`. What the fields
mean is theirs; this module knows only files, lines, unknown keys and how to word a mistake.
"""

from __future__ import annotations

import ast
import difflib
import json
import math
import re
import tomllib
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from swarm.errors import BadInput

Int = Annotated[int, Strict()]
Float = Annotated[float, Strict()]
"""Accepts an integer too, but never text or a boolean."""
Flag = Annotated[bool, Strict()]

Loc = tuple[int | str, ...]
Locate = Callable[[Loc], str]
"""Says where a field is, for a person: the file and the field or line."""

M = TypeVar("M", bound="Frozen")
UNKNOWN_FIELD = "unknown_field"
SHOWN_CHARS = 80


class Frozen(BaseModel):
    """A model that cannot change and that knows which field an unknown key was meant to be."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_fields(cls, raw: object) -> object:
        if isinstance(raw, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for key in raw:
                if key not in known:
                    raise wrong(str(key), "unknown field", suggest(str(key), known), kind=UNKNOWN_FIELD)
        return raw


def wrong(field: str | Loc, what: str, remedy: str, *, kind: str = "wrong") -> PydanticCustomError:
    """Return what a validator raises to blame `field`: dotted, below the model; may be empty.

    Where a part may hold a dot itself, give the parts.
    """
    # The literal type of the template keeps braces in `what` from being read as placeholders.
    return PydanticCustomError(kind, "{what}", {"what": what, "field": field, "remedy": remedy})


def parse(model: type[M], raw: object, locate: Locate, *, notes: list[str] | None = None) -> M:
    """Return `raw` as a `model`, or raise BadInput for the first mistake.

    With `notes`, unknown fields are dropped and noted there instead: that is for files of other projects.
    """
    while True:
        try:
            return model.model_validate(raw)
        except ValidationError as error:
            details = error.errors(include_url=False)
        unknown = [item for item in details if item["type"] == UNKNOWN_FIELD]
        if notes is None or not unknown:
            raise _bad_input(details[0], locate)
        for item in unknown:
            notes.append(str(_bad_input(item, locate)))
            raw = _without(raw, _full_loc(item))


def read_json(data: bytes, where: str) -> object:
    """Parse one JSON value; duplicate keys and NaN are errors."""
    text = decode(data, where)
    try:
        return json.loads(
            text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_float=_finite
        )
    except json.JSONDecodeError as error:
        raise BadInput(
            f"not JSON: {error.msg}", where=f"{where}:{error.lineno}", remedy="correct the syntax there"
        ) from None
    except (ValueError, RecursionError) as error:  # ValueError: an integer of thousands of digits
        raise BadInput(f"not JSON: {error}", where=where, remedy="correct it") from None


def read_toml(text: str, where: str, first_line: int = 1) -> dict[str, Any]:
    """Parse TOML text that starts at line `first_line` of the file `where`."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        number = first_line - 1 + (int(line[1]) if line else len(text.splitlines()))
        what = re.sub(r" \(at .*", "", str(error))
        raise BadInput(
            f"not TOML: {what}", where=f"{where}:{number}", remedy="correct the syntax there"
        ) from None
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits, or too many brackets
        raise BadInput(f"not TOML: {error}", where=f"{where}:{first_line}", remedy="correct it") from None


def read_python(text: str) -> ast.Module:
    """Parse Python source; whatever keeps it from being that is a SyntaxError. Warnings are its author's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (ValueError, RecursionError, MemoryError) as error:
            raise SyntaxError(str(error) or "nested too deeply") from None


def decode(data: bytes, where: str) -> str:
    """Return UTF-8 text with '\\n' line ends."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(
            f"byte {data[error.start]:#04x} is not UTF-8",
            where=f"{where}:{line}",
            remedy="save the file as UTF-8",
        ) from None
    return text.replace("\r\n", "\n")


def json_fields(where: str) -> Locate:
    """Locate fields of a JSON file by their dotted name."""
    return lambda loc: f"{where}: {dotted(loc)}" if loc else where


def toml_fields(text: str, where: str, first_line: int = 1) -> Locate:
    """Locate fields of a TOML file by line and dotted name."""

    def locate(loc: Loc) -> str:
        place = f"{where}:{first_line - 1 + toml_line(text, loc)}"
        return f"{place}: {dotted(loc)}" if loc else place

    return locate


def toml_line(text: str, loc: Loc) -> int:
    """Return the line (from 1) that comes nearest to setting the key `loc` in TOML text."""
    best, best_length = 1, 0
    table: Loc = ()
    counts: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        header = re.match(r"\s*(\[\[?)\s*([\w.\" -]+?)\s*\]", line)
        key = re.match(r"\s*([\w.\"-]+)\s*=", line)
        if header:
            names = _key_path(header[2])
            if header[1] == "[[":
                counts[names] = counts.get(names, -1) + 1
            path = table = _indexed(names, counts)
        elif key:
            path = table + _key_path(key[1])
        else:
            continue
        common = min(len(loc), len(path))
        if common > best_length and loc[:common] == path[:common]:
            best, best_length = number, common
    return best


def _indexed(names: tuple[str, ...], counts: Mapping[tuple[str, ...], int]) -> Loc:
    """Return the location of a table, with the indices of the arrays of tables that it is in."""
    loc: Loc = ()
    for end, name in enumerate(names, start=1):
        loc += (name, counts[names[:end]]) if names[:end] in counts else (name,)
    return loc


def dotted(loc: Loc) -> str:
    """Write a location as `axes.M.value` or `launch[2].grid`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return text.removeprefix(".")


def shown(value: object) -> str:
    """Return `value` as it would be written, cut to a length that fits in a line."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = repr(text) if isinstance(value, str) else text
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def suggest(key: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """Return the remedy for the unknown name `key`: the near miss, or `otherwise`, or all that is known."""
    names = [str(name) for name in known]
    containing = [name for name in names if len(key) > 2 and key.lower() in name.lower()]
    near = containing[:1] or difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return otherwise or f"remove it; known are {', '.join(names) or 'none'}"


def tag_of(kinds: tuple[str, ...], noun: str) -> tuple[Discriminator, BeforeValidator]:
    """Return what tells members of a union apart by their `type`, and what refuses any other type."""

    def kind_of(raw: object) -> object:
        return raw.get("type") if isinstance(raw, dict) else getattr(raw, "type", None)

    def check(raw: object) -> object:
        if isinstance(raw, dict) and "type" not in raw:
            raise wrong("type", "required field is missing", f"add one of {', '.join(kinds)}")
        if kind_of(raw) not in kinds:
            kind = kind_of(raw)
            if kind is None:
                raise wrong(
                    "", f"{shown(raw)} is not allowed", f"write an object with the type {' or '.join(kinds)}"
                )
            raise wrong("type", f"{noun} type {shown(kind)} is unknown", suggest(str(kind), kinds))
        return raw

    return Discriminator(lambda raw: f"<{kind_of(raw)}>"), BeforeValidator(check)


def _bad_input(item: ErrorDetails, locate: Locate) -> BadInput:
    loc = _full_loc(item)
    context = item.get("ctx", {})
    if "what" in context:
        return BadInput(str(context["what"]), where=locate(loc), remedy=str(context["remedy"]))
    if item["type"] == "missing":
        return BadInput("required field is missing", where=locate(loc), remedy="add it")
    remedy = item["msg"][:1].lower() + item["msg"][1:]
    remedy = re.sub(r"a valid dictionary( or instance of \w+)?", "an object", remedy)
    remedy = remedy.replace("a valid tuple", "a list")
    remedy = re.sub(r" after validation, not \d+$", "", remedy)
    remedy = re.sub(r"^(input|value|string|list|tuple|dictionary) should", "it must", remedy)
    return BadInput(f"{shown(item['input'])} is not allowed", where=locate(loc), remedy=remedy)


def _dotted(field: str, kind: str) -> Loc:
    names = (field,) if kind == UNKNOWN_FIELD else field.split(".")
    return tuple(int(name) if name.isdecimal() else name for name in names if name)


def _full_loc(item: ErrorDetails) -> Loc:
    field = item.get("ctx", {}).get("field", "")
    below: Loc = field if isinstance(field, tuple) else _dotted(field, item["type"])
    # Pydantic puts the tags of unions into its locations ("<var>"); they are not in the file.
    return tuple(p for p in item["loc"] if not (isinstance(p, str) and p.startswith("<"))) + below


def _without(raw: object, loc: Loc) -> object:
    """Return a copy of nested dicts and lists without the key at `loc`."""
    head, *rest = loc
    if isinstance(raw, dict):
        if not rest:
            return {key: value for key, value in raw.items() if key != head}
        return {key: _without(value, tuple(rest)) if key == head else value for key, value in raw.items()}
    if isinstance(raw, list) and isinstance(head, int):
        return [_without(value, tuple(rest)) if n == head else value for n, value in enumerate(raw)]
    raise LookupError(f"{dotted(loc)} is not in the data")


def _key_path(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip('"') for part in text.split("."))


class _BadJson(ValueError):
    pass


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        raise _BadJson(f"key {next(n for n in names if names.count(n) > 1)!r} appears twice")
    return result


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _BadJson(f"the number {text[:SHOWN_CHARS]} is too large")
    return value


def _no_constant(name: str) -> object:
    raise _BadJson(f"{name} is not a JSON number")
