"""`swarm problems lint`: would an answer that skips the work pass? The trying itself is the judge's."""

from __future__ import annotations

import os

import click

from swarm.cli.context import json_option, print_json, root_of, stderr, stdout
from swarm.errors import BadInput, SwarmError


@click.command()
@click.argument("names", metavar="[PROBLEM]...", nargs=-1)
@json_option
@click.pass_context
def lint(ctx: click.Context, names: tuple[str, ...], as_json: bool) -> None:
    """Check problems: their files, their reference, and that wrong answers fail.

    Ends with exit code 1 if a problem is broken, or takes an answer that skips the work.
    """
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from swarm.config import choose_problems
    from swarm.device import cpu_device
    from swarm.judge.lint import lint as try_out
    from swarm.judge.reference import References
    from swarm.problem import load_problem
    from swarm.protocol import read_protocol

    root = root_of(ctx)
    tests = read_protocol(root.coordination.read_bytes(), root.coordination.name).tests
    device = cpu_device()
    os.sched_setaffinity(0, device.cores)
    found: dict[str, list[dict[str, object]]] = {}
    bad = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with References(device) as references, Progress(*columns, console=stderr(), transient=True) as progress:
        for name in choose_problems(names or ("*",), root.problems):
            task = progress.add_task(name)
            try:
                findings = try_out(load_problem(root.problem(name)), tests, references)
            except SwarmError as error:
                found[name] = [{"is_weak": True, "text": str(error)}]
            else:
                found[name] = [{"is_weak": f.is_weak, "text": str(f)} for f in findings]
            if any(finding["is_weak"] for finding in found[name]):
                bad.append(name)
            progress.remove_task(task)
            if not as_json:
                _print(name, found[name])
    if as_json:
        print_json(found)
    if bad:
        raise BadInput(f"not sound: {', '.join(bad)}", where="problems", remedy="see what was found above")


def _print(name: str, findings: list[dict[str, object]]) -> None:
    out = stdout()
    weak = any(finding["is_weak"] for finding in findings)
    out.print(f"{name}: {'not sound' if weak else 'sound'}", style="bold red" if weak else "bold green")
    for finding in findings:
        mark = "✗" if finding["is_weak"] else "·"
        out.print(f"  {mark} {finding['text']}", markup=False, soft_wrap=True)
