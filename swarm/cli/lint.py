"""`swarm problems lint`: would a wrong answer pass, does a seed not build? The trying is the judge's."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import click

from swarm.cli.context import json_option, print_json, root_of, stderr, stdout
from swarm.errors import BadInput, Refused, SwarmError

if TYPE_CHECKING:
    from swarm.device import Device
    from swarm.judge.reference import References
    from swarm.layout import RunRoot
    from swarm.problem import Problem
    from swarm.protocol import Protocol

ABSENT_MODEL, ABSENT_ARCH = "nvidia-h100-80gb-hbm3", "sm_90a"
"""What device code is compiled for where no GPU is."""


@dataclass(slots=True)
class Report:
    """What was found about one problem."""

    name: str
    is_marked: bool = False
    """problem.toml says that it is weak."""
    faults: list[str] = field(default_factory=list)
    """What keeps it from being judged: unreadable files, an unusable reference, seeds that do not build."""
    weak: list[str] = field(default_factory=list)
    """Answers that pass and should not."""
    mend: list[str] = field(default_factory=list)
    """The tolerances that would reject them."""
    remarks: list[str] = field(default_factory=list)
    rejected: dict[str, int] = field(default_factory=dict)
    """How many wrong answers of each kind failed, as they should."""

    @property
    def state(self) -> str:
        if self.faults:
            return "broken"
        if self.is_marked:
            return "weak, as marked" if self.weak else "marked weak, but sound"
        return "weak" if self.weak else "sound"

    @property
    def is_accepted(self) -> bool:
        return self.state in ("sound", "weak, as marked")


@click.command()
@click.argument("names", metavar="[PROBLEM]...", nargs=-1)
@click.option(
    "--mark", is_flag=True, help="Write into problem.toml which problems are weak, and which no more."
)
@json_option
@click.pass_context
def lint(ctx: click.Context, names: tuple[str, ...], mark: bool, as_json: bool) -> None:
    """Check problems: files, reference, that wrong answers fail and seeds build.

    Ends with exit code 1 if a problem is broken, or takes a wrong answer and is not marked as
    weak. Marked problems are optimised like others, but no headline figure counts them. Whether a seed is
    correct is for `swarm bench` to say.
    """
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from swarm.config import choose_problems
    from swarm.device import cpu_device
    from swarm.judge.lint import stay_on
    from swarm.judge.reference import References
    from swarm.protocol import read_protocol

    root = root_of(ctx)
    protocol = read_protocol(root.coordination.read_bytes(), root.coordination.name)
    device = cpu_device()
    stay_on(device.cores)
    reports = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with References(device) as references, Progress(*columns, console=stderr(), transient=True) as progress:
        for name in choose_problems(names or ("*",), root.problems):
            task = progress.add_task(name)
            report = _report(root, name, protocol, device, references)
            if mark and not report.faults and report.is_marked != bool(report.weak):
                _mark(root, report)
            reports.append(report)
            progress.remove_task(task)
            if not as_json:
                _print(report)
    if as_json:
        print_json([{**asdict(report), "state": report.state} for report in reports])
    bad = [report.name for report in reports if not report.is_accepted]
    if bad:
        is_one_weak = any(r.weak and not r.faults for r in reports if not r.is_accepted)
        hint = "; --mark marks a weak one whose tolerance must stay" if is_one_weak else ""
        raise BadInput(
            f"not sound: {', '.join(bad)}",
            where="problems",
            remedy=f"see what was found above{hint}",
        )


def _report(root: RunRoot, name: str, protocol: Protocol, device: Device, references: References) -> Report:
    from swarm.judge.lint import lint as try_out
    from swarm.problem import load_problem

    report = Report(name)
    try:
        problem = load_problem(root.problem(name))
        report.is_marked = problem.settings.weak
        _try_seeds(report, root, problem, protocol, device)
        tried = try_out(problem, protocol.tests, references)
    except SwarmError as error:
        report.faults.append(str(error))
        return report
    report.faults += [str(finding) for finding in tried.findings if finding.is_broken]
    report.weak += [str(finding) for finding in tried.findings if not finding.is_broken]
    report.mend += map(str, tried.separations)
    report.rejected = {kind.value: count for kind, count in sorted(tried.rejected.items())}
    return report


def _mark(root: RunRoot, report: Report) -> None:
    """Set the mark in problem.toml, or take it away."""
    from swarm.durable import write_atomic
    from swarm.problem import SETTINGS_FILE
    from swarm.settings import is_marked_weak, marked

    path = root.problem(report.name) / SETTINGS_FILE
    data = marked(path.read_text(encoding="utf-8") if path.exists() else "", bool(report.weak)).encode()
    if is_marked_weak(data, str(path)) != bool(report.weak):
        raise BadInput(
            "the mark of a weak problem is in no line of its own", where=str(path), remedy="edit it"
        )
    write_atomic(path, data)
    report.is_marked = bool(report.weak)


def _try_seeds(report: Report, root: RunRoot, problem: Problem, protocol: Protocol, cpu: Device) -> None:
    """Say of each seed that does not build where and why, or why that could not be tried."""
    from swarm.judge.build import Frozen, build
    from swarm.languages.protocol import Failure

    for language, files in sorted(problem.seeds.items()):
        where = f"{problem.name}/seed/{language}"
        try:
            built = build(files, Frozen(problem, protocol), _target(language, cpu), root.build_cache)
        except Refused as error:  # the machine lacks the compiler: that is no fault of the seed
            report.remarks.append(f"{where} was not compiled: {error}")
            continue
        if isinstance(built, Failure):
            report.faults.append(f"{where}: {built.reason.removeprefix('solution/')}")
        elif (named := built.manifest.language.value) != language:
            wrong = f"language {named!r} does not fit the folder; write {language!r}"
            report.faults.append(f"{where}: solution.toml: {wrong}")


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


def _print(report: Report) -> None:
    out = stdout()
    style = "green" if report.state == "sound" else "yellow" if report.is_accepted else "red"
    rejected = f", {sum(report.rejected.values())} wrong answers rejected" if report.rejected else ""
    out.print(f"{report.name}: [bold {style}]{report.state}[/]{rejected}")
    lines = [("✗", text) for text in (*report.faults, *report.weak)]
    lines += [("→", text) for text in report.mend] + [("·", text) for text in report.remarks]
    for sign, text in lines:
        out.print(f"  {sign} {text}", markup=False, soft_wrap=True)
