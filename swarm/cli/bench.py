"""`swarm bench PROBLEM`: one tree, or one against another, measured here and now. Nothing is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from swarm.cli.context import (
    check_hub,
    device_option,
    json_option,
    print_json,
    print_table,
    root_of,
    run_of,
    run_option,
    stderr,
    stdout,
)
from swarm.cli.submit import REASON_CHARS, print_verdict
from swarm.contents import files_hash
from swarm.errors import BadInput, Refused
from swarm.foreign import inline

if TYPE_CHECKING:
    from swarm.device import Device
    from swarm.job import Job, Tree
    from swarm.judge.build import Frozen
    from swarm.layout import RunPaths, RunRoot
    from swarm.problem import Problem
    from swarm.verdict import Comparison, Verdict

POLL_S = 0.5
IDENTIFIER_CHARS = 40
MAX_FILES, MAX_FILE_BYTES = 1000, 16 << 20
"""What no solution comes near; [output] has the real limits."""
FAILED = 1
"""The exit code if the candidate failed: a script has to be told."""


@click.command()
@click.argument("name", metavar="PROBLEM", required=False)
@click.option(
    "--solution",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder with solution.toml; otherwise the problem's seed.",
)
@click.option("--commit", metavar="REV", help="A commit of the run, by the first characters of its id.")
@click.option("--against", metavar="REV|DIR", help="Compare with this instead of measuring alone.")
@click.option("--language", help="Which seed; otherwise one that the device runs.")
@device_option
@click.option("--sass", is_flag=True, help="Show the machine code of its kernels, too.")
@click.option("--profile", is_flag=True, help="Have Nsight Compute look at its slowest workload, too.")
@click.option("--bundle", type=click.Path(path_type=Path), help="Work off this file of `swarm pending`.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="With --bundle: for the results."
)
@run_option
@json_option
@click.pass_context
def bench(
    ctx: click.Context,
    name: str | None,
    solution: Path | None,
    commit: str | None,
    against: str | None,
    language: str | None,
    device: str | None,
    sass: bool,
    profile: bool,
    bundle: Path | None,
    out: Path | None,
    run_name: str | None,
    as_json: bool,
) -> int:
    """Measure a solution of PROBLEM here and now; nothing is recorded.

    Alone, or against another one in the same sitting. The exit code is 1 if the solution failed; the verdict
    says how. Or, with --bundle, everything that a run left pending.
    """
    if bundle is not None and out is not None and name is None:
        from swarm.cli.bench_bundle import bench_bundle

        bench_bundle(bundle, out, device, as_json)
        return 0
    if name is None or bundle is not None or out is not None:
        raise click.UsageError("give PROBLEM, or both --bundle and --out")
    if solution is not None and commit is not None:
        raise click.UsageError("--solution and --commit exclude each other")
    if language is not None and (solution is not None or commit is not None):
        raise click.UsageError("--language chooses a seed; a solution or commit says its own")
    from swarm.cli import profile as profiling
    from swarm.cli.devices import idle_one
    from swarm.judge.build import Frozen
    from swarm.problem import load_problem
    from swarm.protocol import read_protocol

    root, paths = root_of(ctx), run_of(ctx, run_name)
    problem = load_problem(root.problem(name))
    if solution is None and commit is None:
        candidate, devices = _seed(root, problem, language, device)
    else:
        candidate = _folder(solution) if solution is not None else _commit(paths, name, commit or "")
        devices = _devices_for(root, candidate, device)
    where = idle_one(devices)
    problem.workloads_on(where)  # else the judge would have to refuse it
    other = None if against is None else _other(paths, name, against)
    profiling.check_wishes(candidate.files, where, sass=sass, profile=profile)
    record = _measure(root, _job(root, problem, candidate, other), where)
    rules = Frozen(problem, read_protocol(root.coordination.read_bytes(), root.coordination.name))
    told = _feedback(root, rules, candidate, where, record, sass)
    refused = None
    if profile:
        try:
            told["profile"] = profiling.profiled(root, rules, candidate.files, where, record)
        except Refused as error:  # what was measured is shown all the same
            refused = error
    if as_json:
        print_json(asdict(record) | told)
    else:
        _print(record, told)
    if refused is not None:
        raise refused
    return 0 if _has_held(record) else FAILED


def _has_held(record: Verdict | Comparison) -> bool:
    """Say whether the candidate did what it was measured for: it passed, or it was compared."""
    from swarm.verdict import Status, Verdict

    if isinstance(record, Verdict):
        return record.status is Status.PASSED
    return record.failure is None and record.ratio is not None


def _job(root: RunRoot, problem: Problem, candidate: Tree, other: Tree | None) -> Job:
    from swarm.hub import epoch_hash
    from swarm.job import Job, Purpose

    files = {**problem.files, root.coordination.name: root.coordination.read_bytes()}
    purpose = Purpose.VERDICT if other is None else Purpose.COMPARISON
    return Job("bench", purpose, problem.name, epoch_hash(files), files, candidate, other)


def _measure(root: RunRoot, job: Job, device: Device) -> Verdict | Comparison:
    from swarm.cli.devices import describe, open_pool
    from swarm.pool.protocol import Lost

    out = stderr()
    out.print(f"on {describe([device])}", style="dim", markup=False, soft_wrap=True)
    with closing(open_pool(root, [device])) as pool, out.status(f"measuring {job.problem}"):
        pool.submit(job)
        while not (finished := pool.poll(POLL_S)):
            pass
    if isinstance(finished[0], Lost):
        raise Refused(
            f"{job.problem} could not be measured: {finished[0].reason}", remedy="type: swarm doctor"
        )
    return finished[0].record


def _feedback(
    root: RunRoot,
    rules: Frozen,
    candidate: Tree,
    device: Device,
    record: Verdict | Comparison,
    sass: bool,
) -> dict[str, Any]:
    """Return what the compiler and the clock say of the candidate's kernels."""
    from swarm.cli import feedback
    from swarm.cli.devices import peaks_of
    from swarm.verdict import Verdict

    verdict = record if isinstance(record, Verdict) else None
    return feedback.collect(root, rules, candidate.files, device, verdict, peaks_of(root, device), sass=sass)


def _print(record: Verdict | Comparison, told: Mapping[str, Any]) -> None:
    from swarm.cli import feedback
    from swarm.cli import profile as profiling
    from swarm.verdict import Verdict

    if isinstance(record, Verdict):
        print_verdict(record)
    else:
        _print_comparison(record)
    feedback.show(told)
    if "profile" in told:
        profiling.show(told["profile"])


def _seed(
    root: RunRoot, problem: Problem, language: str | None, device: str | None
) -> tuple[Tree, list[Device]]:
    """Return a seed, and the devices that it runs on."""
    from swarm.cli.devices import choose
    from swarm.config import load_config

    choice = choose(device or load_config(root).run.device, language, problem.seeds)
    if choice.language not in problem.seeds:
        raise BadInput(
            f"{problem.name} has no seed in {choice.language!r}",
            remedy=f"name one of: {', '.join(sorted(problem.seeds)) or 'none is there'}; or give --solution",
        )
    return _tree(problem.seeds[choice.language]), choice.devices


def _devices_for(root: RunRoot, tree: Tree, device: str | None) -> list[Device]:
    """Return the devices that a tree runs on; any will do to say what is wrong with a manifest."""
    from swarm.cli.devices import chosen_devices
    from swarm.config import load_config
    from swarm.solution import load_manifest

    try:
        language = load_manifest(tree.files).language.value
    except BadInput:
        language = None
    return chosen_devices(device or load_config(root).run.device, language)


def _other(paths: RunPaths, problem: str, text: str) -> Tree:
    try:
        is_folder = Path(text).is_dir()
    except OSError:  # longer than any path
        is_folder = False
    return _folder(Path(text)) if is_folder else _commit(paths, problem, text)


def _folder(folder: Path) -> Tree:
    if not (folder / "solution.toml").is_file():
        raise BadInput("no solution.toml", where=str(folder), remedy="name the folder that holds it")
    files: dict[str, bytes] = {}
    try:
        for path in folder.rglob("*"):
            if path.is_symlink():
                raise BadInput("is a symbolic link", where=str(path), remedy="put the file itself there")
            if not path.is_file():
                continue
            if len(files) == MAX_FILES or path.stat().st_size > MAX_FILE_BYTES:
                what = f"more than {MAX_FILES} files, or one above {MAX_FILE_BYTES >> 20} MiB"
                raise BadInput(what, where=str(folder), remedy="name a folder that holds one solution only")
            files[path.relative_to(folder).as_posix()] = path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot be read: {error}", where=str(folder), remedy="correct that") from None
    return _tree(dict(sorted(files.items())))


def _commit(paths: RunPaths, problem: str, text: str) -> Tree:
    from swarm.hub import Hub
    from swarm.job import Tree

    check_hub(paths)
    with Hub(paths) as hub:
        found = [s for s in hub.commits(problem) if s.commit.startswith(text)] if text else []
        if len({s.commit for s in found}) != 1:
            what = "no commit" if not found else f"{len(found)} commits"
            raise BadInput(f"{what} of {problem} {text!r}", remedy=f"`swarm log {problem}` lists them")
        return Tree(found[0].tree, found[0].commit, hub.solution_files(found[0].commit))


def _tree(files: Mapping[str, bytes]) -> Tree:
    """Name files that are in no git tree by their content."""
    from swarm.job import Tree

    identifier = files_hash(files)[:IDENTIFIER_CHARS]
    return Tree(identifier, identifier, dict(files))


def _print_comparison(comparison: Comparison) -> None:
    out = stdout()
    ratio = ""
    if comparison.ratio is not None:
        ratio = f"  {comparison.ratio:.4f} [{comparison.low:.4f}, {comparison.high:.4f}]"
    out.print(f"{comparison.outcome.value}{ratio}  {comparison.problem}", style="bold", markup=False)
    out.print(f"the judge: {inline(comparison.reason, REASON_CHARS)}", markup=False, soft_wrap=True)
    print_table(
        ("workload", "other / this", "low", "high", "quads"),
        [
            (one.uuid, f"{one.ratio:.4f}", f"{one.low:.4f}", f"{one.high:.4f}", str(one.quads))
            for one in comparison.workloads
        ],
        right=frozenset(("other / this", "low", "high", "quads")),
    )
