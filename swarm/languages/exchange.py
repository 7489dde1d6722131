"""From a Submission (SOL-ExecBench's solution.json) to a solution/ folder, and back without loss.

What the manifest has no word for is kept in its [exchange] table, and comes back as it was. This is the part
that needs no compiler: host code that exists already. Host code for a launch plan is made by `languages`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from swarm.errors import BadInput
from swarm.languages.compile_options import PARAM, WORD, options_of, sorted_options
from swarm.languages.python_host import params_module
from swarm.launch import Param
from swarm.scan import PARAMS_MODULE
from swarm.schema import Locate, parse
from swarm.solution import MANIFEST, Compile, Language, Manifest, load_manifest, render_manifest
from swarm.submission import (
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
}
"""What a submission in these languages needs beyond what is here in any case."""
PARAMS_FILE = f"{PARAMS_MODULE}.py"
"""Where Python sources find [params]; there is such a file in a submission only."""
REQUIRED = ("name", "definition", "author", "target_hardware")
"""What a submission must say in any case."""


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
    if any(path.split("/")[0] == MANIFEST for path in paths):
        raise BadInput(f"a source is called {MANIFEST}", where=where, remedy="rename it; that one is ours")
    built = tuple(path for path in paths if path.endswith(language.suffixes))
    given = spec.compile_options if not spec.is_python else None
    options, params, left_out = sorted_options(given, allowed_options)
    if spec.is_python:
        params = _taken_params(submission)
        built = tuple(path for path in built if path != PARAMS_FILE or not params)
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
                pip_packages=spec.pip_packages,
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
        if source.path != PARAMS_FILE or not (spec.is_python and params):
            files[source.path] = source.content.encode()
    return Imported(files, tuple(_remarks(submission, manifest, files)))


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
    if manifest.language.is_host and manifest.params:
        files = {**files, PARAMS_FILE: params_module(manifest.params)}
        manifest = manifest.model_copy(update={"sources": (*manifest.sources, PARAMS_FILE)})
    paths = [path for path in exchange.sources if path in files]
    paths += [path for path in manifest.sources if path not in paths]
    binding = exchange.binding or manifest.binding
    is_host = manifest.language.is_host
    options = exchange.compile_options if is_host else options_of(manifest, exchange)
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
            "pip_packages": exchange.pip_packages,
            "destination_passing_style": manifest.destination_passing,
            "binding": None if binding == "none" else binding,
            "compile_options": None if options is None else options.model_dump(),
        },
        "sources": [{"path": path, "content": _decoded(files[path], where + path)} for path in paths],
    }
    submission = parse(Submission, raw, _located(where))
    check_complete(submission, where)
    return submission


def _taken_params(submission: Submission) -> dict[str, Param]:
    """Return the parameters of a submission that holds them in a file just as we would write it."""
    for source in submission.sources:
        if source.path == PARAMS_FILE:
            params: dict[str, Param] = {}
            for line in source.content.splitlines():
                name, equals, value = line.partition(" = ")
                if equals and PARAM.fullmatch(name):
                    params[name] = _literal(value)
            if params and params_module(params).decode() == source.content:
                return params
    return {}


def _literal(text: str) -> Param:
    """Return the number or word that a line of Python sets, -1 if it is neither."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return -1
    is_word = isinstance(value, str) and WORD.fullmatch(value) is not None
    is_number = type(value) in (int, float) and abs(value) < float("inf")
    return value if is_word or is_number else -1


def _remarks(submission: Submission, manifest: Manifest, files: Collection[str]) -> list[str]:
    spec = submission.spec
    remarks = [
        f"{name} needs {NEEDS[name]}: without it, it cannot be built or run here"
        for name in spec.languages
        if name in NEEDS
    ]
    kept = manifest.exchange
    assert kept is not None
    idle = [path for path in kept.sources if path in files and path not in manifest.sources]
    if idle:
        remarks.append(f"kept, but not a file of {manifest.language}, so not built: {', '.join(idle)}")
    if kept.left_out:
        options = " ".join(kept.left_out)
        remarks.append(f"kept, but not among [rules.compile_options], so not used here: {options}")
    if wanted := (*spec.dependencies, *spec.pip_packages):
        remarks.append(f"dependencies are kept, not installed: {', '.join(wanted)}")
    if not spec.destination_passing_style:
        remarks.append("it returns its outputs: that is measured on GPUs only")
    return remarks


def _checked(raw: dict[str, object], where: str) -> Manifest:
    return parse(Manifest, raw, _located(where))


def _located(where: str) -> Locate:
    return lambda loc: f"{where}: {'.'.join(map(str, loc))}" if loc else where


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"byte {error.start} is not UTF-8", where=where, remedy="save it as UTF-8") from None
