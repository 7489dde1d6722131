"""From a solution/ folder in any GPU language to a Submission; host code is generated where there is none."""

from __future__ import annotations

from collections.abc import Mapping

from swarm.errors import BadInput
from swarm.languages.cuda_header import device_header, host_header
from swarm.languages.exchange import completed, export_tree
from swarm.languages.plan_source import plan_sources
from swarm.languages.planning import make_plan
from swarm.languages.torch_binding import BINDING_FILE, FUNCTION, torch_binding
from swarm.languages.units import included
from swarm.problem import Problem
from swarm.solution import MANIFEST, Compile, Language, Manifest, load_manifest, render_manifest
from swarm.submission import Exchange, Submission

FOR_ARCHITECTURE = ("-arch", "-gencode", "--gpu-architecture", "--generate-code")
ARCHITECTURE_REMARK = (
    "LOCAL is compiled without what is one architecture's own (wgmma, setmaxnreg);"
    " if it uses that, name it: --arch sm_90a"
)


def export_solution(
    files: Mapping[str, bytes],
    problem: Problem,
    chosen: Exchange,
    defaults: Exchange,
    arch: str | None,
    where: str,
) -> tuple[Submission, tuple[str, ...]]:
    """Return the submission, and what whoever submits it should know."""
    manifest = load_manifest(files, where)
    exchange = completed(manifest.exchange, chosen, defaults)
    if manifest.language is Language.CPP:
        raise BadInput(
            "language cpp is for CPUs", where=where, remedy="SOL-ExecBench takes kernels for GPUs only"
        )
    if not manifest.language.is_host and manifest.binding is None:
        files, manifest = torch_form(files, manifest, problem, where)
        exchange = exchange.model_copy(
            update={"compile_options": None, "left_out": (), "binding": None, "sources": ()}
        )
    if arch is not None:
        if manifest.language.is_host:
            raise BadInput(f"language {manifest.language} names no architecture", remedy="leave --arch out")
        files, manifest = _for_arch(files, manifest, arch)
    submission = export_tree(files, exchange, where)
    return submission, tuple(_remarks(submission, problem))


def torch_form(
    files: Mapping[str, bytes], manifest: Manifest, problem: Problem, where: str
) -> tuple[dict[str, bytes], Manifest]:
    """Return a solution without host code, or with a C function, as a torch extension."""
    definition = problem.definition
    sources = {name: files[name] for name in manifest.sources}
    is_plan = manifest.language is Language.CUDA
    header = device_header(definition) if is_plan else host_header(definition)
    laid_out = included(sources, header, where)
    made = dict(torch_binding(definition, where))
    if is_plan:
        made |= plan_sources(make_plan(manifest, definition), definition, laid_out, where)
    else:
        for place, name in enumerate(laid_out.compiled):
            original = name.removesuffix(".cuh").removesuffix(".hpp").removesuffix(".h")
            suffix = original.rpartition(".")[2]
            made[f"swarm_unit_{place}.{suffix}"] = laid_out.unit(manifest.params.items(), [name])
    for name in made:
        if name in laid_out.files:
            raise BadInput(f"a source is called {name}", where=where, remedy="rename it")
    result = {**laid_out.files, **{name: text.encode() for name, text in made.items()}}
    bound = Manifest(
        language=Language.CUDA_CPP,
        binding="torch",
        sources=(*made, *laid_out.files),
        entry=f"{BINDING_FILE}::{FUNCTION}",
        compile=manifest.compile,
        exchange=manifest.exchange,
    )
    return {**result, MANIFEST: render_manifest(bound)}, bound


def _for_arch(files: Mapping[str, bytes], manifest: Manifest, arch: str) -> tuple[dict[str, bytes], Manifest]:
    number = arch.removeprefix("sm_")
    if not number.rstrip("af").isdecimal() or number == arch:
        raise BadInput(f"{arch!r} is not an architecture", where="--arch", remedy="write sm_90a or the like")
    option = f"-gencode=arch=compute_{number},code={arch}"
    options = (*manifest.compile.options, option)
    changed = manifest.model_copy(update={"compile": Compile(options=options)})
    return {**files, MANIFEST: render_manifest(changed)}, changed


def _remarks(submission: Submission, problem: Problem) -> list[str]:
    remarks = []
    if submission.definition != problem.definition.name:
        what = (
            f"it is for {submission.definition!r}, while {problem.name} defines {problem.definition.name!r}"
        )
        remarks.append(what)
    spec = submission.spec
    options = spec.compile_options.cuda_cflags if spec.compile_options else ()
    has_arch = any(option.startswith(FOR_ARCHITECTURE) for option in options)
    if not spec.is_python and "LOCAL" in spec.target_hardware and not has_arch:
        remarks.append(ARCHITECTURE_REMARK)
    return remarks
