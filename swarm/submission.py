"""A Submission: one solution.json in SOL-ExecBench's schema, and what a tree keeps of it.

The form alone. From a submission to a solution/ folder and back is `exchange`; nothing here runs or builds
anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Literal

from pydantic import Field, field_validator, model_validator

from swarm.errors import BadInput
from swarm.schema import Flag, Frozen, json_fields, parse, read_json, shown, suggest, wrong

SUBMISSION_FILE = "solution.json"
PYTHON_LANGUAGES = ("pytorch", "triton", "cute_dsl", "cutile", "cudnn_frontend", "tlx")
CPP_LANGUAGES = ("cuda_cpp", "cutlass", "cudnn", "cublas")
LANGUAGES = (*PYTHON_LANGUAGES, *CPP_LANGUAGES)
HARDWARE = ("B200", "LOCAL")
CPP_SUFFIXES = (".cu", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".cuh")
COMPILED_SUFFIXES = (".cu", ".cpp", ".cc", ".cxx", ".c")
"""Of the files that their builder compiles, and only if they lie in no folder."""


class CompileOptions(Frozen):
    """spec.compile_options; the defaults are theirs."""

    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ("-O3", "--use_fast_math")
    ld_flags: tuple[str, ...] = ("-lcuda",)


class Spec(Frozen):
    """How a submission is built and called."""

    languages: tuple[str, ...] = Field(min_length=1)
    target_hardware: tuple[str, ...] = Field(min_length=1)
    entry_point: str
    """`file::function`."""
    dependencies: tuple[str, ...] = ()
    pip_packages: tuple[str, ...] = ()
    """Installed before it is evaluated; a field of newer versions."""
    destination_passing_style: Flag = True
    binding: Literal["torch"] | None = None
    compile_options: CompileOptions | None = None
    """None is not the defaults: their builder then gives nothing but the architecture."""

    @field_validator("languages")
    @classmethod
    def _known_languages(cls, languages: tuple[str, ...]) -> tuple[str, ...]:
        for number, name in enumerate(languages):
            if name not in LANGUAGES:
                raise wrong(str(number), f"language {shown(name)} is unknown", suggest(name, LANGUAGES))
        if {name in PYTHON_LANGUAGES for name in languages} == {True, False}:
            raise wrong("", "Python and C++ languages are mixed", "make two submissions of it")
        return languages

    @field_validator("target_hardware")
    @classmethod
    def _known_hardware(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for number, name in enumerate(names):
            if name not in HARDWARE:
                raise wrong(str(number), f"hardware {shown(name)} is unknown", suggest(name, HARDWARE))
        return names

    @model_validator(mode="after")
    def _has_an_entry(self) -> Spec:
        file, _, function = self.entry_point.partition("::")
        if not file or not function.isidentifier():
            raise wrong("entry_point", f"{shown(self.entry_point)} is not an entry", "write file::function")
        suffixes = (".py",) if self.is_python else CPP_SUFFIXES
        if not file.endswith(suffixes):
            what = f"{shown(file)} is not a file of {', '.join(self.languages)}"
            raise wrong("entry_point", what, f"its name must end in {' or '.join(suffixes)}")
        return self

    @property
    def is_python(self) -> bool:
        return self.languages[0] in PYTHON_LANGUAGES

    @property
    def entry_file(self) -> str:
        return self.entry_point.partition("::")[0]


class Source(Frozen):
    """One file of a submission."""

    path: str
    content: str = ""
    """May be empty in a file on disk: it then lies beside solution.json."""

    @field_validator("path")
    @classmethod
    def _is_relative(cls, path: str) -> str:
        parts = path.split("/")
        is_plain = PurePosixPath(path).as_posix() == path and not {"", ".", ".."} & set(parts)
        if not is_plain or "\0" in path or "\\" in path:
            what = f"path {shown(path)} is not allowed"
            raise wrong("", what, "write a path below the solution, without '.' and '..'")
        return path


class Submission(Frozen):
    """One solution.json."""

    name: str = Field(min_length=1)
    definition: str = Field(min_length=1)
    """The name of the problem's definition."""
    author: str = Field(min_length=1)
    description: str | None = None
    spec: Spec
    sources: tuple[Source, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _holds_together(self) -> Submission:
        paths = [source.path for source in self.sources]
        for number, path in enumerate(paths):
            if path in paths[:number]:
                raise wrong(f"sources.{number}.path", f"{shown(path)} appears twice", "list each file once")
            for folder in PurePosixPath(path).parents:
                if folder.as_posix() in paths:
                    what = f"{shown(folder.as_posix())} is a file and a folder"
                    raise wrong(f"sources.{number}.path", what, "rename one of them")
        if self.spec.entry_file not in paths:
            what = f"{shown(self.spec.entry_file)} is not among the sources"
            raise wrong("spec.entry_point", what, suggest(self.spec.entry_file, paths))
        return self


class Exchange(Frozen):
    """[exchange] in solution.toml: what a submission says that a manifest has no word for.

    All of it is optional: a tree that was never a submission gets the defaults when it becomes one.
    """

    name: str | None = None
    definition: str | None = None
    author: str | None = None
    description: str | None = None
    languages: tuple[str, ...] = ()
    """As the submission names them; the manifest says what they are built as here."""
    target_hardware: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    pip_packages: tuple[str, ...] = ()
    binding: Literal["torch", "none"] | None = None
    sources: tuple[str, ...] = ()
    """All files in the submission's order, where some are not the manifest's: those are not built here."""
    left_out: tuple[str, ...] = ()
    """The compiler options that are not used here, since [rules] does not list them."""
    compile_options: CompileOptions | None = None

    def lines(self) -> Iterator[str]:
        """Yield the lines of these tables in solution.toml."""
        yield from ("", "[exchange]")
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value not in (None, ()) and name != "compile_options":
                yield f"{name} = {_toml(value)}"
        if self.compile_options is not None:
            yield from ("", "[exchange.compile_options]")
            for name in CompileOptions.model_fields:
                yield f"{name} = {_toml(getattr(self.compile_options, name))}"


def parse_submission(data: bytes, where: str, *, warnings: list[str] | None = None) -> Submission:
    """Parse solution.json; sources may still be empty. Unknown fields are noted in `warnings`, if given."""
    raw = read_json(data, where)
    try:
        json.dumps(raw, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadInput("a text holds half of a surrogate pair", where=where, remedy="correct it") from None
    return parse(Submission, raw, json_fields(where), notes=warnings)


def check_complete(submission: Submission, where: str) -> None:
    """Raise BadInput for a source without content: their schema refuses one."""
    for number, source in enumerate(submission.sources):
        if not source.content:
            raise BadInput(
                f"{shown(source.path)} is empty",
                where=f"{where}: sources[{number}].content",
                remedy="put something into it, a comment for example, or leave the file out",
            )


def submission_json(submission: Submission) -> bytes:
    """Write solution.json, every field of it; one that older versions do not know only if it is used."""
    fields = submission.model_dump(mode="json")
    if not submission.spec.pip_packages:
        del fields["spec"]["pip_packages"]
    return (json.dumps(fields, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _toml(value: str | Iterable[str]) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"[{', '.join(map(_toml, value))}]"
