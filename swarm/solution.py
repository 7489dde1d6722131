"""A Solution: solution.toml and its sources, as a tree of files relative to solution/.

Says whether a tree keeps to the protocol, and rewrites parameters for whoever tunes them. Building and
running is the languages' part; `scan` reads the sources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

from pydantic import Field, field_validator, model_validator

from swarm.errors import BadInput
from swarm.launch import (
    Launch,
    Memset,
    Param,
    ParamValue,
    Scratch,
    TensorMap,
    check_plan_tables,
    render_plan_tables,
    toml_value,
)
from swarm.protocol import Protocol, Rules
from swarm.scan import check_sources
from swarm.schema import Flag, Frozen, decode, parse, read_toml, shown, suggest, toml_fields, wrong
from swarm.sources import check_files
from swarm.submission import Exchange

MANIFEST = "solution.toml"
FOLDER = "solution/"


class Language(StrEnum):
    """What sources are written in."""

    CPP = "cpp"
    PYTORCH = "pytorch"
    CUDA = "cuda"
    """Device code alone, launched from the manifest's plan."""
    CUDA_CPP = "cuda_cpp"
    TRITON = "triton"
    CUTE_DSL = "cute_dsl"

    @property
    def suffixes(self) -> tuple[str, ...]:
        return self.compiled_suffixes + self._other_suffixes

    @property
    def compiled_suffixes(self) -> tuple[str, ...]:
        """Of files that are compiled on their own, one of which must be there."""
        match self:
            case Language.CPP:
                return (".cpp",)
            case Language.CUDA:
                return (".cu",)
            case Language.CUDA_CPP:
                return (".cu", ".cpp", ".cc", ".cxx", ".c")
            case _:
                return (".py",)

    @property
    def _other_suffixes(self) -> tuple[str, ...]:
        match self:
            case Language.CPP:
                return (".h", ".hpp")
            case Language.CUDA | Language.CUDA_CPP:
                return (".cuh", ".h", ".hpp")
            case _:
                return ()

    @property
    def is_host(self) -> bool:
        """Whether sources are Python, called through an entry point."""
        return self in (Language.PYTORCH, Language.TRITON, Language.CUTE_DSL)


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
    """False: the entry returns its outputs, new tensors, which only GPUs are measured with."""
    binding: Literal["torch"] | None = None
    """`cuda_cpp` only: the sources make a torch extension with an entry; without it they define a C `run`."""
    compile: Compile = Compile()
    params: dict[str, ParamValue] = Field(default_factory=dict)
    tune: dict[str, tuple[ParamValue, ...]] = Field(default_factory=dict)
    scratch: dict[str, Scratch] = Field(default_factory=dict)
    tensormap: dict[str, TensorMap] = Field(default_factory=dict)
    launch: tuple[Launch, ...] = ()
    memset: tuple[Memset, ...] = ()
    exchange: Exchange | None = None
    """What a submission says that has no meaning here; builds ignore it."""

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
        _check_plan(self)
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
    check_files(files, protocol.output, where)
    manifest = load_manifest(files, where)
    kept = manifest.exchange.sources if manifest.exchange else ()
    for path in sorted(files):
        if path != MANIFEST and path not in (*manifest.sources, *kept):
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
                lines[number] = f"{indent}{name}{equals}{toml_value(params[name])}{line[match.end() :]}"
    result = {**files, MANIFEST: "".join(lines).encode()}
    if load_manifest(result, where) != manifest.model_copy(update={"params": {**manifest.params, **params}}):
        raise BadInput(
            "its parameters cannot be rewritten",
            where=where + MANIFEST,
            remedy="write a [params] table with one NAME = value on each line",
        )
    return result


def render_manifest(manifest: Manifest) -> bytes:
    """Write solution.toml."""
    lines = [f"language = {toml_value(manifest.language)}", f"sources = {toml_value(manifest.sources)}"]
    if manifest.entry is not None:
        lines.append(f"entry = {toml_value(manifest.entry)}")
    if not manifest.destination_passing:
        lines.append("destination_passing = false")
    if manifest.binding is not None:
        lines.append(f"binding = {toml_value(manifest.binding)}")
    if manifest.compile.options:
        lines += ["", "[compile]", f"options = {toml_value(manifest.compile.options)}"]
    if manifest.params:
        lines += [
            "",
            "[params]",
            *(f"{name} = {toml_value(value)}" for name, value in manifest.params.items()),
        ]
    if manifest.tune:
        lines += ["", "[tune]", *(f"{name} = {toml_value(values)}" for name, values in manifest.tune.items())]
    lines += render_plan_tables(manifest.launch, manifest.memset, manifest.scratch, manifest.tensormap)
    if manifest.exchange is not None:
        lines += manifest.exchange.lines()
    return ("\n".join(lines) + "\n").encode()


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
    compiled = manifest.language.compiled_suffixes
    if not any(source.endswith(compiled) for source in manifest.sources):
        raise wrong("sources", f"no {' or '.join(compiled)} file to compile", "add one")


def _check_entry(manifest: Manifest) -> None:
    if manifest.binding is not None and manifest.language is not Language.CUDA_CPP:
        raise wrong("binding", f"language {manifest.language} has no binding", "remove it")
    if not manifest.language.is_host and manifest.binding is None:
        if manifest.entry is not None:
            what = f"language {manifest.language} has no entry"
            is_launched = manifest.language is Language.CUDA
            remedy = "the [[launch]] tables say what runs" if is_launched else "the function is 'run'"
            raise wrong("entry", what, f"remove it; {remedy}")
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
    if manifest.compile.options and manifest.language.is_host:
        raise wrong("compile.options", f"language {manifest.language} has no compiler", "remove them")


def _check_plan(manifest: Manifest) -> None:
    tables = (manifest.launch, manifest.memset, manifest.scratch, manifest.tensormap)
    if manifest.language is Language.CUDA:
        check_plan_tables(*tables, manifest.params)
        return
    for name, table in zip(("launch", "memset", "scratch", "tensormap"), tables, strict=True):
        if table:
            raise wrong(name, f"language {manifest.language} launches its own kernels", "remove the table")


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
