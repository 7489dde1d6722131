"""`swarm problems lint`: would a wrong answer pass, does a seed not build? The trying is the judge's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from swarm.cli.context import json_option, print_json, root_of, stderr, stdout
from swarm.errors import BadInput, Refused, SwarmError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from swarm.device import Device
    from swarm.layout import RunRoot
    from swarm.problem import Problem
    from swarm.protocol import Protocol

ABSENT_MODEL, ABSENT_ARCH = "nvidia-h100-80gb-hbm3", "sm_90a"
"""What device code is compiled for where no GPU is."""


@click.command()
@click.argument("names", metavar="[PROBLEM]...", nargs=-1)
@json_option
@click.pass_context
def lint(ctx: click.Context, names: tuple[str, ...], as_json: bool) -> None:
    """Check problems: files, reference, that wrong answers fail and seeds build.

    Ends with exit code 1 if a problem is broken, or takes an answer that skips the work. Whether a seed is
    correct is for `swarm bench` to say.
    """
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from swarm.config import choose_problems
    from swarm.device import cpu_device
    from swarm.judge.lint import lint as try_out
    from swarm.judge.reference import References
    from swarm.problem import load_problem
    from swarm.protocol import read_protocol

    root = root_of(ctx)
    protocol = read_protocol(root.coordination.read_bytes(), root.coordination.name)
    device = cpu_device()
    os.sched_setaffinity(0, device.cores)
    found: dict[str, list[dict[str, object]]] = {}
    bad = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with References(device) as references, Progress(*columns, console=stderr(), transient=True) as progress:
        for name in choose_problems(names or ("*",), root.problems):
            task = progress.add_task(name)
            try:
                problem = load_problem(root.problem(name))
                found[name] = list(_seeds(root, problem, protocol, device))
                findings = try_out(problem, protocol.tests, references)
                found[name] += [{"is_weak": f.is_weak, "text": str(f)} for f in findings]
            except SwarmError as error:
                found[name] = [*found.get(name, ()), {"is_weak": True, "text": str(error)}]
            if any(finding["is_weak"] for finding in found[name]):
                bad.append(name)
            progress.remove_task(task)
            if not as_json:
                _print(name, found[name])
    if as_json:
        print_json(found)
    if bad:
        raise BadInput(f"not sound: {', '.join(bad)}", where="problems", remedy="see what was found above")


def _seeds(root: RunRoot, problem: Problem, protocol: Protocol, cpu: Device) -> Iterator[dict[str, object]]:
    """Say of each seed that does not build where and why, or why that could not be tried."""
    from swarm.judge.build import Frozen, build
    from swarm.languages.protocol import Failure

    for language, files in sorted(problem.seeds.items()):
        where = f"{problem.name}/seed/{language}"
        try:
            built = build(files, Frozen(problem, protocol), _target(language, cpu), root.build_cache)
        except Refused as error:  # the machine lacks the compiler: that is no fault of the seed
            yield {"is_weak": False, "text": f"{where} was not compiled: {error}"}
            continue
        if isinstance(built, Failure):
            yield {"is_weak": True, "text": f"{where}: {built.reason.removeprefix('solution/')}"}
        elif (named := built.manifest.language.value) != language:
            wrong = f"language {named!r} does not fit the folder; write {language!r}"
            yield {"is_weak": True, "text": f"{where}: solution.toml: {wrong}"}


def _target(language: str, cpu: Device) -> Device:
    """Return what to compile a seed for: the CPU, a GPU that is here, or one that is not."""
    from swarm.cli.devices import chosen_devices
    from swarm.device import Device, runs_on

    if runs_on(language, cpu.kind):
        return cpu
    try:
        return chosen_devices(None, language)[0]
    except Refused:
        return Device("cuda", ABSENT_MODEL, "", cpu.cores, ABSENT_ARCH)


def _print(name: str, findings: list[dict[str, object]]) -> None:
    out = stdout()
    weak = any(finding["is_weak"] for finding in findings)
    out.print(f"{name}: {'not sound' if weak else 'sound'}", style="bold red" if weak else "bold green")
    for finding in findings:
        mark = "✗" if finding["is_weak"] else "·"
        out.print(f"  {mark} {finding['text']}", markup=False, soft_wrap=True)
