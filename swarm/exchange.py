"""From a Submission (SOL-ExecBench's solution.json) to a solution/ folder, and back without loss.

What the manifest has no word for is kept in its [exchange] table, and comes back as it was. This is the part
that needs no compiler: host code that exists already. Host code for a launch plan is made by `languages`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from swarm.errors import BadInput
from swarm.launch import Param
from swarm.schema import Locate, parse
from swarm.solution import MANIFEST, Compile, Language, Manifest, load_manifest, render_manifest
from swarm.submission import (
    CompileOptions,
    Exchange,
    Submission,
    check_complete,
)

BUILT_AS: Mapping[str, Language] = {
    "cute_dsl": Language.CUTE_DSL,
    "triton": Language.TRITON,
    "tlx": Language.TRITON,
    "pytorch": Language.PYTORCH,
    "cutile": Language.PYTORCH,
    "cudnn_frontend": Language.PYTORCH,
    "cuda_cpp": Language.CUDA_CPP,
    "cutlass": Language.CUDA_CPP,
    "cudnn": Language.CUDA_CPP,
    "cublas": Language.CUDA_CPP,
}
"""Their language -> ours; the first that a submission names counts."""
NEEDS = {
    "tlx": "Triton with the TLX extensions",
    "cutile": "NVIDIA's cuda.tile package",
    "cudnn_frontend": "NVIDIA's cudnn-frontend package",
    "cutlass": "the CUTLASS headers",
    "cudnn": "the headers and library of cuDNN",
    "cublas": "linking with cuBLAS",
}
"""What a submission in these languages needs beyond what is here in any case."""
REQUIRED = ("name", "definition", "author", "target_hardware")
"""What a submission must say in any case."""
DEFINE = re.compile(r"-D([A-Z][A-Z0-9_]{0,63})=(.+)")


@dataclass(frozen=True, slots=True)
class Imported:
    files: dict[str, bytes]
    """A solution/ folder."""
    remarks: tuple[str, ...]
    """What of the submission has no effect here, or is not to be had."""


def fill_contents(submission: Submission, folder: Path, where: str) -> Submission:
    """Take sources without content from the files in `folder`, where solution.json lies."""
    filled = []
    for number, source in enumerate(submission.sources):
        if not source.content:
            path = folder / source.path
            place = f"{where}: sources[{number}].content"
            if path.is_symlink() or not path.is_file():
                raise BadInput(
                    f"empty, and there is no file {source.path!r} beside it", where=place, remedy="add it"
                )
            try:
                with path.open(encoding="utf-8", newline="") as file:
                    source = source.model_copy(update={"content": file.read()})
            except UnicodeDecodeError as error:
                raise BadInput(
                    f"byte {error.start} of {source.path!r} is not UTF-8", where=place, remedy="correct it"
                ) from None
        filled.append(source)
    complete = submission.model_copy(update={"sources": tuple(filled)})
    check_complete(complete, where)
    return complete


def import_submission(submission: Submission, allowed_options: Collection[str], where: str) -> Imported:
    """Return the solution/ folder of a submission whose sources are all filled.

    Of its compiler options those in `allowed_options` are used here; the others are kept for its way back.
    """
    spec = submission.spec
    language = next(BUILT_AS[name] for name in BUILT_AS if name in spec.languages)
    paths = tuple(source.path for source in submission.sources)
    if MANIFEST in paths:
        raise BadInput(f"a source is called {MANIFEST}", where=where, remedy="rename it; that one is ours")
    built = tuple(path for path in paths if path.endswith(language.suffixes))
    given = spec.compile_options if not spec.is_python else None
    options, params, left_out = _sorted_options(given, allowed_options)
    manifest = _checked(
        {
            "language": language.value,
            "sources": built,
            "entry": spec.entry_point,
            "destination_passing": spec.destination_passing_style,
            "binding": None if spec.is_python else "torch",
            "compile": Compile(options=options),
            "params": params,
            "exchange": Exchange(
                name=submission.name,
                definition=submission.definition,
                author=submission.author,
                description=submission.description,
                languages=spec.languages,
                target_hardware=spec.target_hardware,
                dependencies=spec.dependencies,
                binding=spec.binding or "none",
                sources=paths if built != paths else (),
                left_out=left_out,
                compile_options=spec.compile_options,
            ),
        },
        where,
    )
    files = {MANIFEST: render_manifest(manifest)}
    for source in submission.sources:
        files[source.path] = _encoded(source.content, f"{where}: {source.path}")
    return Imported(files, tuple(_remarks(submission, manifest)))


def completed(kept: Exchange | None, chosen: Exchange, defaults: Exchange) -> Exchange:
    """Return what an export says: what was chosen for it, else what the tree keeps, else the defaults."""
    known = kept or Exchange()
    layers = (chosen, known) if known.name is not None else (chosen, known, defaults)
    values = {}
    for name in Exchange.model_fields:
        given = [getattr(layer, name) for layer in layers if getattr(layer, name) not in (None, ())]
        values[name] = given[0] if given else getattr(defaults if name in REQUIRED else known, name)
    return Exchange(**values)


def export_tree(files: Mapping[str, bytes], exchange: Exchange, where: str) -> Submission:
    """Return the submission of a tree whose host code is its own: Python, or a torch extension.

    `exchange` is complete and stands for the tree's own.
    """
    manifest = load_manifest(files, where)
    if manifest.binding is None and not manifest.language.is_host:
        raise BadInput(
            f"language {manifest.language} has no function that torch can call",
            where=where,
            remedy="have it generated",
        )
    languages = exchange.languages
    if manifest.language not in {BUILT_AS.get(name) for name in languages}:
        languages = (manifest.language.value,)
    paths = [path for path in exchange.sources if path in files]
    paths += [path for path in manifest.sources if path not in paths]
    binding = exchange.binding or manifest.binding
    is_host = manifest.language.is_host
    options = exchange.compile_options if is_host else _options(manifest, exchange)
    raw = {
        "name": exchange.name,
        "definition": exchange.definition,
        "author": exchange.author,
        "description": exchange.description,
        "spec": {
            "languages": languages,
            "target_hardware": exchange.target_hardware,
            "entry_point": manifest.entry,
            "dependencies": exchange.dependencies,
            "destination_passing_style": manifest.destination_passing,
            "binding": None if binding == "none" else binding,
            "compile_options": None if options is None else options.model_dump(),
        },
        "sources": [{"path": path, "content": _decoded(files[path], where + path)} for path in paths],
    }
    submission = parse(Submission, raw, _located(where))
    check_complete(submission, where)
    return submission


def define(name: str, value: Param) -> str:
    """Return the compiler option that sets a parameter."""
    return f"-D{name}={value}"


def _sorted_options(
    given: CompileOptions | None, allowed: Collection[str]
) -> tuple[tuple[str, ...], dict[str, Param], tuple[str, ...]]:
    """Sort options into those used here, macros that can be parameters, and the rest."""
    options: list[str] = []
    params: dict[str, Param] = {}
    left_out: list[str] = []
    for option in given.cuda_cflags if given else ():
        macro = _param(option)
        if option in allowed:
            options += [option] if option not in options else []
        elif macro is not None and macro[0] not in params:
            params[macro[0]] = macro[1]
        else:
            left_out.append(option)
    for option in (*given.cflags, *given.ld_flags) if given else ():
        macro = _param(option)
        if macro is None or (macro[0], params.get(macro[0])) != macro:
            left_out.append(option)
    return tuple(options), params, tuple(dict.fromkeys(left_out))


def _param(option: str) -> tuple[str, Param] | None:
    """Return the parameter that an option defines, if it is written exactly as we would write it."""
    match = DEFINE.fullmatch(option)
    if match is None or match[1].startswith("SWARM_"):
        return None
    readings: list[Param] = []
    for kind in (int, float):
        try:
            readings.append(kind(match[2]))
        except ValueError:
            continue
    if re.fullmatch(r"[A-Za-z_]\w{0,63}", match[2], re.ASCII):
        readings = [match[2]]
    return next(((match[1], value) for value in readings if define(match[1], value) == option), None)


def _options(manifest: Manifest, kept: Exchange) -> CompileOptions | None:
    """Return the compiler options that a tree's submission needs; as they were, if nothing has changed."""
    macros = {name: define(name, value) for name, value in manifest.params.items()}
    if kept.compile_options is None:
        if not manifest.compile.options and not macros and kept.binding is not None:
            return None
        ours = (*manifest.compile.options, *macros.values())
        base = (
            CompileOptions(cuda_cflags=(), ld_flags=())
            if kept.binding
            else CompileOptions(cuda_cflags=("-O3",))
        )
        return base.model_copy(
            update={"cflags": tuple(macros.values()), "cuda_cflags": (*base.cuda_cflags, *ours)}
        )

    def current(options: tuple[str, ...]) -> tuple[str, ...]:
        """Keep what was never ours to change, and bring parameters to their values."""
        result = []
        for option in options:
            macro = _param(option)
            if option in kept.left_out or option in manifest.compile.options:
                result.append(option)
            elif macro is not None and macro[0] in macros:
                result.append(macros[macro[0]])
        return tuple(result)

    given = kept.compile_options
    cuda = current(given.cuda_cflags)
    added = [o for o in (*manifest.compile.options, *macros.values()) if o not in cuda]
    return CompileOptions(cflags=current(given.cflags), cuda_cflags=(*cuda, *added), ld_flags=given.ld_flags)


def _remarks(submission: Submission, manifest: Manifest) -> list[str]:
    spec = submission.spec
    remarks = [
        f"{name} needs {NEEDS[name]}: without it, it cannot be built or run here"
        for name in spec.languages
        if name in NEEDS
    ]
    kept = manifest.exchange
    assert kept is not None
    idle = [path for path in kept.sources if path not in manifest.sources]
    if idle:
        remarks.append(f"kept, but not a file of {manifest.language}, so not built: {', '.join(idle)}")
    if kept.left_out:
        options = " ".join(kept.left_out)
        remarks.append(f"kept, but not among [rules.compile_options], so not used here: {options}")
    if spec.dependencies:
        remarks.append(f"dependencies are kept, not installed: {', '.join(spec.dependencies)}")
    if not spec.destination_passing_style:
        remarks.append("it returns its outputs, which only a baseline may; a solution writes into them")
    return remarks


def _checked(raw: dict[str, object], where: str) -> Manifest:
    return parse(Manifest, raw, _located(where))


def _located(where: str) -> Locate:
    return lambda loc: f"{where}: {'.'.join(map(str, loc))}" if loc else where


def _encoded(text: str, where: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadInput("holds half of a surrogate pair", where=where, remedy="write UTF-8") from None


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"byte {error.start} is not UTF-8", where=where, remedy="save it as UTF-8") from None
