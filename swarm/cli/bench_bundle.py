"""`swarm bench --bundle FILE --out DIR`: work a bundle off on a host without network or repository.

Imports only what such a host has: click, pydantic, and torch and CUDA's bindings in the judges. DIR is laid
out like a run root, so that records, baselines and caches are where every other part looks for them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from swarm.errors import BadInput, Refused, SwarmError

if TYPE_CHECKING:
    from swarm.away import Sitting, Standing
    from swarm.bundle import Bundle, Part
    from swarm.device import Device
    from swarm.layout import RunRoot
    from swarm.pool.protocol import Done, Lost

HEADINGS = ("problem", "judged", "passed", "compared", "champion", "now", "speedup", "left")


@dataclass(frozen=True, slots=True)
class Row:
    """What a sitting came to for one problem."""

    problem: str
    verdicts: int
    passed: int
    comparisons: int
    champion: str
    """The commit that was champion when the bundle was made."""
    now: str
    """The commit that home will make champion by these records."""
    speedup: float | None
    left: int
    """Trees that have no verdict still."""


def bench_bundle(file: Path, out: Path, device: str | None, as_json: bool) -> None:
    """Judge everything in `file`, play the comparisons that follow, and leave the records in `out`."""
    from swarm import bundle
    from swarm.cli.devices import describe
    from swarm.layout import RunRoot
    from swarm.parcel import pack

    found = bundle.read(file)
    devices = _devices(found, device)
    root = RunRoot(out.resolve())
    click.echo(f"{found.run}: {_amount(found)}, on {describe(devices)}", err=True)
    with _claimed(root, found, devices[0]):
        rows, left = _sit(found, root, devices)
        try:
            remarks = _measure_baselines(found, root, devices[0])
        except SwarmError as error:  # the verdicts are worth packing all the same
            remarks, left["baselines"] = [], str(error)
        archive = pack(root)
    if as_json:
        click.echo(json.dumps({"problems": [asdict(row) for row in rows], "left": left}, indent=1))
    else:
        _print(rows, [*remarks, *(f"{what}: {why}" for what, why in left.items())])
        click.echo(f"at home: swarm results import {archive.name}    (it lies in {archive.parent})")
    if left:
        raise Refused(
            f"{len(left)} of the jobs could not be done; the first: {next(iter(left.values()))}",
            where=str(file),
            remedy="what is done is kept: give the same command again",
        )


def _amount(found: Bundle) -> str:
    verdicts = sum(len(part.pending) for part in found.parts)
    comparisons = sum(len(part.wanted) for part in found.parts)
    return f"{verdicts} verdicts and {comparisons} comparisons wanted"


def _devices(found: Bundle, name: str | None) -> list[Device]:
    """Return what `--device` names, or else what the bundle's language runs on."""
    from swarm.cli.devices import chosen_devices

    return chosen_devices(name, _language(found))


def _language(found: Bundle) -> str | None:
    """Return the language of the first tree that says what it is; a run has one."""
    from swarm.solution import load_manifest

    for part in found.parts:
        for tree in part.trees.values():
            with suppress(BadInput):
                return load_manifest(tree.files).language.value
    return None


@contextmanager
def _claimed(root: RunRoot, found: Bundle, device: Device) -> Iterator[None]:
    """Hold the folder for this bundle's run and this device; nobody else may work there meanwhile."""
    from swarm.away import check_fits
    from swarm.locks import held
    from swarm.parcel import Origin, claim

    check_fits(found, device.model)
    lock = root.workspace / "bench.lock"
    with held(lock, timeout_s=1.0, purpose="work a bundle off"):
        claim(root, Origin(found.run, found.judge_version, device.model))
        yield


def _sit(found: Bundle, root: RunRoot, devices: Sequence[Device]) -> tuple[list[Row], dict[str, str]]:
    from swarm.away import Sitting
    from swarm.cli.devices import open_pool
    from swarm.ledger import Ledger

    model = devices[0].model
    with (
        closing(open_pool(root, devices)) as pool,
        Ledger(root.run(found.run)) as ledger,
        _Progress() as progress,
    ):
        sitting = Sitting(found, ledger, pool, model, progress.tell)
        progress.sitting = sitting
        sitting.run()
        rows = [_row(sitting, part) for part in found.parts]
        return rows, sitting.left()


class _Progress:
    """A bar on a terminal, a line per record elsewhere; on stderr."""

    def __init__(self) -> None:
        self.sitting: Sitting | None = None
        self._bar: Any = None
        if sys.stderr.isatty():
            self._bar = click.progressbar(
                length=1, label="judging", file=sys.stderr, item_show_func=lambda item: item or ""
            )

    def __enter__(self) -> _Progress:
        if self._bar is not None:
            self._bar.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None:
            self._bar.__exit__(*error)

    def tell(self, outcome: Done | Lost) -> None:
        assert self.sitting is not None
        done, expected = self.sitting.finished, self.sitting.expected
        line = _sentence(outcome)
        if self._bar is None:
            click.echo(f"[{done}/{expected}] {line}", err=True)
            return
        self._bar.length = max(1, expected)
        self._bar.update(done - self._bar.pos, line)


def _sentence(outcome: Done | Lost) -> str:
    from swarm.pool.protocol import Lost
    from swarm.verdict import Verdict

    about = f"{outcome.job.problem} {outcome.job.candidate.commit[:10]}"
    if isinstance(outcome, Lost):
        return f"{about} not judged: {outcome.reason}"
    record = outcome.record
    if isinstance(record, Verdict):
        time_us = record.time_us
        return f"{about} {record.status}" + ("" if time_us is None else f" {time_us:.4g} µs")
    return f"{about} {record.outcome}" + ("" if record.ratio is None else f" {record.ratio:.4f}")


def _row(sitting: Sitting, part: Part) -> Row:
    from swarm.verdict import Status

    standing = sitting.standing(part)
    before = {trial.tree for trial in part.facts.trials if trial.status is not None}
    new = {t.tree: t for t in standing.facts.trials if t.status is not None and t.tree not in before}
    wanted = set(part.pending)
    return Row(
        part.facts.name,
        len(new),
        sum(1 for trial in new.values() if trial.status is Status.PASSED),
        len(standing.facts.matches) - len(part.facts.matches),
        part.facts.champion,
        standing.facts.champion,
        _speedup(standing),
        len(wanted - new.keys()),
    )


def _speedup(standing: Standing) -> float | None:
    from math import prod

    gains = [merge.speedup for merge in standing.merges]
    known = [gain for gain in gains if gain is not None]
    return prod(known) if known and len(known) == len(gains) else None


def _measure_baselines(found: Bundle, root: RunRoot, device: Device) -> list[str]:
    """Measure the baselines that home lacks and return what is to be said of them."""
    from swarm.away import COORDINATION
    from swarm.baseline import load_baseline, save_baseline
    from swarm.judge.baseline import measure
    from swarm.problem import Problem, problem_from_files

    by_protocol: dict[bytes, list[Problem]] = {}
    remarks: list[str] = []
    for part in found.parts:
        name = part.facts.name
        try:
            if name in found.baselines and load_baseline(root, device.model, name) is None:
                problem = problem_from_files(part.problem_files, name)
                by_protocol.setdefault(part.problem_files.get(COORDINATION, b""), []).append(problem)
        except BadInput as error:  # the others can be measured all the same
            remarks.append(str(error))
    count = sum(map(len, by_protocol.values()))
    if count:
        click.echo(f"measuring the baselines of {count} problems, {found.baseline_s:.0f} s at most", err=True)
    for coordination, problems in by_protocol.items():
        budget_s = found.baseline_s * len(problems) / count
        for baseline in measure(problems, coordination, device, root.build_cache, budget_s):
            save_baseline(root, baseline)
            remarks += baseline.remarks
    return remarks


def _print(rows: Sequence[Row], remarks: Sequence[str]) -> None:
    cells = [HEADINGS, *map(_cells, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADINGS))]
    for row in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for remark in remarks:
        click.echo(f"! {remark}")


def _cells(row: Row) -> tuple[str, ...]:
    now = "the same" if row.now == row.champion else row.now[:10]
    speedup = "–" if row.speedup is None else f"{row.speedup:.3f}"
    counts = (str(row.verdicts), str(row.passed), str(row.comparisons))
    return (row.problem, *counts, row.champion[:10], now, speedup, str(row.left))
