"""`swarm import-solution` and `swarm export`: SOL-ExecBench's solution.json, in and out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from swarm.cli.context import (
    check_hub,
    json_option,
    print_json,
    root_of,
    run_of,
    run_option,
    stderr,
    stdout,
)
from swarm.errors import BadInput, Refused

if TYPE_CHECKING:
    from swarm.layout import RunRoot
    from swarm.protocol import Protocol
    from swarm.submission import Submission

AUTHOR = "kernel-swarm"


@click.command("import-solution")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder to make; otherwise one named after the solution, here.",
)
@json_option
@click.pass_context
def import_solution(ctx: click.Context, file: Path, into: Path | None, as_json: bool) -> None:
    """Make a solution folder of FILE, a SOL-ExecBench solution.json.

    Sources without content are taken from the files beside it. What has no meaning here is kept, so that
    `swarm export` gives the same solution again.
    """
    from swarm.languages.exchange import fill_contents, import_submission
    from swarm.solution import validate_tree
    from swarm.submission import parse_submission

    root = _root_or_none(ctx)
    protocol = _protocol(root)
    remarks: list[str] = []
    submission = parse_submission(file.read_bytes(), str(file), warnings=remarks)
    submission = fill_contents(submission, file.parent, str(file))
    allowed = protocol.rules.compile_options.get("cuda_cpp", ())
    made = import_submission(submission, allowed, str(file))
    remarks += made.remarks
    try:
        validate_tree(made.files, protocol, "")
    except BadInput as error:
        remarks.append(f"as it stands it would be refused here: {error}")
    folder = into or Path(_slug(submission.name))
    _write(folder, made.files)
    problem = None if root is None else _problem_of(root, submission.definition)
    if as_json:
        print_json(
            {
                "folder": str(folder),
                "files": sorted(made.files),
                "definition": submission.definition,
                "problem": problem,
                "remarks": remarks,
            }
        )
        return
    out = stdout()
    out.print(f"{submission.name} is in {folder}", markup=False, soft_wrap=True)
    for remark in remarks:
        out.print(f"  {remark}", markup=False, soft_wrap=True)
    if problem is None:
        out.print(f"  no problem here computes {submission.definition!r}", markup=False, soft_wrap=True)
    else:
        out.print(f"measure it: swarm bench {problem} --solution {folder}", markup=False, soft_wrap=True)


@click.command()
@click.argument("name", metavar="PROBLEM")
@click.option("--commit", metavar="REV", help="A commit of the run; otherwise the champion.")
@click.option(
    "--solution",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder with solution.toml instead.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="A file; otherwise stdout.")
@click.option("--name", "called", metavar="NAME", help="What to call the solution.")
@click.option("--author", metavar="NAME", help=f"Otherwise the one it came with, or {AUTHOR}.")
@click.option(
    "--hardware",
    multiple=True,
    type=click.Choice(["B200", "LOCAL"], case_sensitive=False),
    help="What it is for; may be repeated.",
)
@click.option("--arch", metavar="ARCH", help="What nvcc compiles for, e.g. sm_90a; only for CUDA C++.")
@run_option
@click.pass_context
def export(
    ctx: click.Context,
    name: str,
    commit: str | None,
    solution: Path | None,
    out: Path | None,
    called: str | None,
    author: str | None,
    hardware: tuple[str, ...],
    arch: str | None,
    run_name: str | None,
) -> None:
    """Write a solution of PROBLEM as a SOL-ExecBench solution.json.

    The champion, unless a commit or a folder is named. Host code is generated for kernels that have none.
    """
    if solution is not None and commit is not None:
        raise click.UsageError("--solution and --commit exclude each other")
    from swarm.languages.export import export_solution
    from swarm.problem import load_problem
    from swarm.submission import Exchange, submission_json

    root = root_of(ctx)
    problem = load_problem(root.problem(name))
    where, files = _folder(solution) if solution is not None else _commit(ctx, run_name, name, commit)
    chosen = Exchange(name=called, author=author, target_hardware=hardware)
    defaults = Exchange(
        name=f"{name}-{where[:10].strip('/')}" if solution is None else f"{name}-{solution.resolve().name}",
        definition=problem.definition.name,
        author=AUTHOR,
        target_hardware=("LOCAL",),
    )
    submission, remarks = export_solution(files, problem, chosen, defaults, arch, where)
    data = submission_json(submission)
    if out is None:
        click.echo(data.decode(), nl=False)
    else:
        from swarm.durable import write_atomic

        write_atomic(out, data)
    console = stderr()
    for remark in remarks:
        console.print(remark, markup=False, soft_wrap=True)
    if out is not None:
        console.print(_summary(submission, out), markup=False, soft_wrap=True)


def _summary(submission: Submission, out: Path) -> str:
    size = len(submission.sources)
    files = f"{size} file" if size == 1 else f"{size} files"
    return f"{out}: {submission.name}, {', '.join(submission.spec.languages)}, {files}"


def _root_or_none(ctx: click.Context) -> RunRoot | None:
    """Return the run root if there is one; a solution can be imported without."""
    try:
        return root_of(ctx)
    except BadInput:
        if ctx.find_root().obj is not None:  # somebody named one, wrongly
            raise
        return None


def _protocol(root: RunRoot | None) -> Protocol:
    from importlib import resources

    from swarm.protocol import read_protocol

    if root is not None:
        return read_protocol(root.coordination.read_bytes(), root.coordination.name)
    template = resources.files("swarm") / "templates" / "COORDINATION.md"
    return read_protocol(template.read_bytes(), template.name)


def _problem_of(root: RunRoot, definition: str) -> str | None:
    """Return the name of the problem whose definition has this name; problems that are broken have none."""
    from swarm.config import choose_problems
    from swarm.problem import load_problem

    for name in choose_problems(("*",), root.problems):
        try:
            if load_problem(root.problem(name)).definition.name == definition:
                return name
        except BadInput:
            continue
    return None


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:80] or "solution"


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    from swarm.durable import create_only

    if folder.exists() and any(folder.iterdir()):
        raise Refused(f"{folder} is not empty", remedy="name another folder with --into")
    for name, data in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            create_only(path, data)
        except OSError as error:
            raise Refused(f"{path} cannot be written: {error.strerror}", remedy="shorten its name") from None


def _folder(folder: Path) -> tuple[str, dict[str, bytes]]:
    if not (folder / "solution.toml").is_file():
        raise BadInput("no solution.toml", where=str(folder), remedy="name the folder that holds it")
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    return f"{folder}/", files


def _commit(
    ctx: click.Context, run_name: str | None, problem: str, commit: str | None
) -> tuple[str, dict[str, bytes]]:
    from swarm.hub import Hub

    paths = run_of(ctx, run_name)
    check_hub(paths)
    with Hub(paths) as hub:
        if commit is None:
            champions = hub.champions()
            if problem not in champions:
                raise BadInput(f"run {paths.run!r} has no problem {problem!r}", remedy="type: swarm status")
            found = {champions[problem]}
        else:
            found = {s.commit for s in hub.commits(problem) if s.commit.startswith(commit)}
            if len(found) != 1:
                what = "no commit" if not found else f"{len(found)} commits"
                raise BadInput(f"{what} of {problem} {commit!r}", remedy=f"`swarm log {problem}` lists them")
        [one] = found
        return f"{one[:10]}/", hub.solution_files(one)
