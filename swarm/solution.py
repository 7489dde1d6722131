"""A Solution: solution.toml and its sources, as a tree of files relative to solution/.

Says whether a tree keeps to the protocol, and rewrites parameters for whoever tunes them. Building and
running is the languages' part; `scan` reads the sources.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import Field, PlainValidator, field_validator, model_validator

from swarm.errors import BadInput
from swarm.protocol import Protocol, Rules
from swarm.scan import PROBLEM_HEADER, check_sources
from swarm.schema import Flag, Frozen, decode, parse, read_toml, shown, suggest, toml_fields, wrong

MANIFEST = "solution.toml"
FOLDER = "solution/"
MAX_PATH_CHARS = 120

Param = int | float | str


class Language(StrEnum):
    """What sources are written in; the manifests of the others follow with their compilers."""

    CPP = "cpp"
    PYTORCH = "pytorch"

    @property
    def suffixes(self) -> tuple[str, ...]:
        return (".cpp", ".h", ".hpp") if self is Language.CPP else (".py",)

    @property
    def is_host(self) -> bool:
        """Whether sources are Python, called through an entry point."""
        return self is Language.PYTORCH


def _param(raw: object) -> Param:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise wrong("", f"{shown(raw)} is not allowed", "a parameter is a number or a word")
    if isinstance(raw, str) and not re.fullmatch(r"[A-Za-z_]\w{0,63}", raw, re.ASCII):
        raise wrong(
            "", f"{shown(raw)} is not allowed", "a text parameter is one word of letters, digits and '_'"
        )
    if isinstance(raw, float) and not abs(raw) < float("inf"):
        raise wrong("", f"{raw} is not allowed", "a parameter is finite")
    return raw


ParamValue = Annotated[int | float | str, PlainValidator(_param)]


class Compile(Frozen):
    """[compile]: what is added to the compiler's command line."""

    options: tuple[str, ...] = ()


class Manifest(Frozen):
    """solution.toml."""

    language: Language
    sources: tuple[str, ...] = Field(min_length=1)
    entry: str | None = None
    """`file.py::function`, for languages whose host code is Python."""
    destination_passing: Flag = True
    """False: the entry returns its outputs. For baselines only."""
    compile: Compile = Compile()
    params: dict[str, ParamValue] = Field(default_factory=dict)
    tune: dict[str, tuple[ParamValue, ...]] = Field(default_factory=dict)

    @field_validator("language", mode="before")
    @classmethod
    def _known_language(cls, raw: object) -> object:
        if raw not in tuple(Language):
            raise wrong("", f"language {shown(raw)} is unknown", suggest(str(raw), Language))
        return raw

    @model_validator(mode="after")
    def _holds_together(self) -> Manifest:
        _check_sources(self)
        _check_entry(self)
        for name in self.params:
            if not re.fullmatch(r"[A-Z][A-Z0-9_]{0,63}", name) or name.startswith("SWARM_"):
                raise wrong(
                    f"params.{name}", "the name is not allowed", "use upper-case letters, digits and '_'"
                )
        for name, values in self.tune.items():
            _check_tune(self, name, values)
        return self


def load_manifest(files: Mapping[str, bytes], where: str = FOLDER) -> Manifest:
    """Parse solution.toml out of the files of a solution/ folder; `where` is put before file names."""
    if MANIFEST not in files:
        raise BadInput(f"no {MANIFEST}", where=where, remedy="add one with language and sources")
    text = decode(files[MANIFEST], where + MANIFEST)
    raw = read_toml(text, where + MANIFEST)
    manifest = parse(Manifest, raw, toml_fields(text, where + MANIFEST))
    for source in manifest.sources:
        if source not in files:
            raise BadInput(
                f"source {source!r} is not in the tree",
                where=toml_fields(text, where + MANIFEST)(("sources",)),
                remedy=suggest(source, set(files) - {MANIFEST}),
            )
    return manifest


def validate_tree(files: Mapping[str, bytes], protocol: Protocol, where: str = FOLDER) -> None:
    """Raise BadInput, naming file and line, unless `files` keep to [output] and [rules]."""
    _check_paths(files, where)
    _check_sizes(files, protocol, where)
    manifest = load_manifest(files, where)
    for path in sorted(files):
        if path != MANIFEST and path not in manifest.sources:
            raise BadInput(
                "not among the sources", where=where + path, remedy=f"list it in {MANIFEST}, or delete it"
            )
    _check_rules(manifest, files, protocol.rules, where)


def with_params(
    files: Mapping[str, bytes], params: Mapping[str, Param], where: str = FOLDER
) -> dict[str, bytes]:
    """Return `files` with these [params] values; every other byte of solution.toml stays, comments too."""
    manifest = load_manifest(files, where)
    for name in params:
        if name not in manifest.params:
            raise BadInput(
                f"no parameter {name!r}", where=where + MANIFEST, remedy=suggest(name, manifest.params)
            )
    lines = decode(files[MANIFEST], where + MANIFEST).splitlines(keepends=True)
    in_params = False
    for number, line in enumerate(lines):
        if re.match(r"\s*\[", line):
            in_params = re.match(r"\s*\[\s*params\s*\]", line) is not None
        elif in_params and (match := re.match(r"(\s*)([A-Z0-9_]+)(\s*=\s*)([^\s#]+)", line)):
            indent, name, equals, _ = match.groups()
            if name in params:
                lines[number] = f"{indent}{name}{equals}{_toml(params[name])}{line[match.end() :]}"
    result = {**files, MANIFEST: "".join(lines).encode()}
    if load_manifest(result, where).params != {**manifest.params, **params}:
        raise BadInput(
            "its parameters cannot be rewritten",
            where=where + MANIFEST,
            remedy="write a [params] table with one NAME = value on each line",
        )
    return result


def render_manifest(manifest: Manifest) -> bytes:
    """Write solution.toml."""
    lines = [f"language = {_toml(manifest.language)}", f"sources = {_toml(manifest.sources)}"]
    if manifest.entry is not None:
        lines.append(f"entry = {_toml(manifest.entry)}")
    if not manifest.destination_passing:
        lines.append("destination_passing = false")
    if manifest.compile.options:
        lines += ["", "[compile]", f"options = {_toml(manifest.compile.options)}"]
    if manifest.params:
        lines += ["", "[params]", *(f"{name} = {_toml(value)}" for name, value in manifest.params.items())]
    if manifest.tune:
        lines += ["", "[tune]", *(f"{name} = {_toml(values)}" for name, values in manifest.tune.items())]
    return ("\n".join(lines) + "\n").encode()


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def _check_sources(manifest: Manifest) -> None:
    for source in manifest.sources:
        if manifest.sources.count(source) > 1:
            raise wrong("sources", f"{source!r} appears twice", "list each file once")
        if not source.endswith(manifest.language.suffixes):
            raise wrong(
                "sources",
                f"{source!r} is not a {manifest.language} file",
                f"its name must end in {' or '.join(manifest.language.suffixes)}",
            )
    if manifest.language is Language.CPP and not any(s.endswith(".cpp") for s in manifest.sources):
        raise wrong("sources", "no .cpp file to compile", "add one")


def _check_entry(manifest: Manifest) -> None:
    if not manifest.language.is_host:
        if manifest.entry is not None:
            raise wrong(
                "entry", f"language {manifest.language} has no entry", "remove it; the function is 'run'"
            )
        if not manifest.destination_passing:
            raise wrong("destination_passing", "the outputs are always passed", "remove it")
        return
    file, _, function = (manifest.entry or "").partition("::")
    if file not in manifest.sources or not function.isidentifier():
        raise wrong(
            "entry",
            f"{shown(manifest.entry)} is not an entry",
            f"write {manifest.sources[0]}::run or the like",
        )
    if manifest.compile.options:
        raise wrong("compile.options", f"language {manifest.language} has no compiler", "remove them")


def _check_tune(manifest: Manifest, name: str, values: tuple[Param, ...]) -> None:
    if name not in manifest.params:
        raise wrong(f"tune.{name}", "no such parameter", suggest(name, manifest.params))
    if not values or len(set(values)) != len(values):
        raise wrong(f"tune.{name}", f"{list(values)} is not a choice", "list distinct values")
    kind = type(manifest.params[name])
    for value in values:
        if type(value) is not kind:
            raise wrong(
                f"tune.{name}",
                f"{shown(value)} is not of the type of params.{name}",
                f"write {kind.__name__} values",
            )


def _check_paths(files: Mapping[str, bytes], where: str) -> None:
    folded: dict[str, str] = {}
    for path in files:
        parts = path.split("/")
        is_plain = all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", part) for part in parts)
        if not is_plain or len(path) > MAX_PATH_CHARS:
            raise BadInput(
                f"path {shown(path)} is not allowed",
                where=where,
                remedy=f"use letters, digits, _ - . and no leading '.', at most {MAX_PATH_CHARS} characters",
            )
        if parts[-1] == PROBLEM_HEADER:
            raise BadInput(
                f"{PROBLEM_HEADER} is ours", where=where + path, remedy="delete it; it is generated"
            )
        if path.lower() in folded:
            raise BadInput(
                f"differs from {folded[path.lower()]!r} only in case", where=where + path, remedy="rename one"
            )
        folded[path.lower()] = path
        if parts[-1].endswith(".py") and _module(parts[0]) in _taken_modules():
            raise BadInput(
                f"hides the module {_module(parts[0])!r}",
                where=where + path,
                remedy="rename it, e.g. kernel.py",
            )


def _check_sizes(files: Mapping[str, bytes], protocol: Protocol, where: str) -> None:
    limits = protocol.output
    if len(files) > limits.max_files:
        raise BadInput(f"{len(files)} files", where=where, remedy=f"use at most {limits.max_files}")
    for path, content in files.items():
        if len(content) > limits.max_file_bytes:
            raise BadInput(
                f"{len(content)} bytes", where=where + path, remedy=f"use at most {limits.max_file_bytes}"
            )
        decode(content, where + path)
        if b"\0" in content:
            raise BadInput("holds a zero byte", where=where + path, remedy="sources are text")
    total = sum(map(len, files.values()))
    if total > limits.max_total_bytes:
        raise BadInput(f"{total} bytes in all", where=where, remedy=f"use at most {limits.max_total_bytes}")


def _check_rules(manifest: Manifest, files: Mapping[str, bytes], rules: Rules, where: str) -> None:
    language = manifest.language.value
    locate = toml_fields(decode(files[MANIFEST], where + MANIFEST), where + MANIFEST)
    if language not in rules.languages:
        raise BadInput(
            f"language {language!r} is not allowed here",
            where=locate(("language",)),
            remedy=f"use {' or '.join(rules.languages)}",
        )
    for option in manifest.compile.options:
        if option not in rules.compile_options[language]:
            raise BadInput(
                f"option {option!r} is not allowed",
                where=locate(("compile", "options")),
                remedy=suggest(option, rules.compile_options[language]),
            )
    sources = {source: decode(files[source], where + source) for source in manifest.sources}
    check_sources(sources, language, rules, where)


def _module(part: str) -> str:
    return part.removesuffix(".py")


def _taken_modules() -> frozenset[str]:
    return sys.stdlib_module_names | {"torch", "triton", "numpy", "swarm", "cuda"}
