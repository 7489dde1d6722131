"""`swarm log PROBLEM`: seed, attempts and merges with what was measured of them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from swarm.cli.context import check_hub, json_option, print_json, print_table, run_of, run_option
from swarm.errors import BadInput
from swarm.report.render import microseconds

if TYPE_CHECKING:
    from swarm.hub import Submission
    from swarm.layout import RunPaths
    from swarm.verdict import Verdict

MARKS = {"epoch": "◆", "merge": "●", "attempt": "·"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One commit of a problem's current epoch."""

    submission: Submission
    kind: str
    verdict: Verdict | None
    refusal: str


@click.command()
@click.argument("problem")
@click.option("--merges", is_flag=True, help="Only what became champion.")
@run_option
@json_option
@click.pass_context
def log(ctx: click.Context, problem: str, merges: bool, run_name: str | None, as_json: bool) -> None:
    """Show what was tried on PROBLEM, newest first: seed, attempts, merges."""
    paths = run_of(ctx, run_name)
    entries = [e for e in entries_of(paths, problem) if not merges or e.kind != "attempt"]
    if as_json:
        print_json([_json(entry) for entry in entries])
        return
    print_table(
        ("", "commit", "when", "by", "µs", "what came of it", "what was tried"),
        [_row(entry) for entry in entries],
        right=frozenset(("µs",)),
    )


def entries_of(paths: RunPaths, problem: str) -> list[Entry]:
    """Return the commits of a problem's current epoch, newest first; BadInput if it has no branch."""
    from swarm.hub import Hub
    from swarm.ledger import Ledger
    from swarm.schema import suggest

    check_hub(paths)
    with Hub(paths) as hub, Ledger(paths) as ledger:
        champions = hub.champions()
        if problem not in champions:
            remedy = suggest(problem, champions, otherwise="`swarm status` shows its problems")
            raise BadInput(f"run {paths.run!r} has no problem {problem!r}", remedy=remedy)
        epoch = hub.epoch(problem)
        verdicts = {v.tree: v for v in ledger.verdicts(problem) if v.epoch == epoch.hash}
        refusals = ledger.refusals(problem)
        entries = []
        for submission in hub.commits(problem):
            refusal = refusals.get(submission.commit)
            kind = (
                "attempt" if submission.branch else "epoch" if submission.commit == epoch.commit else "merge"
            )
            entries.append(
                Entry(submission, kind, verdicts.get(submission.tree), refusal.reason if refusal else "")
            )
    return sorted(entries, key=lambda e: e.submission.committed_s)[::-1]


def _row(entry: Entry) -> tuple[str, ...]:
    one, verdict = entry.submission, entry.verdict
    what = "refused" if entry.refusal else verdict.status.value if verdict else "not measured yet"
    if entry.kind == "merge":
        speedup = one.trailers.get("Speedup")
        what = f"champion, {speedup}×" if speedup else "champion, speedup unknown"
    worker = one.branch.worker if one.branch else one.trailers.get("Worker", "")
    return (
        MARKS[entry.kind],
        one.commit[:10],
        time.strftime("%H:%M:%S", time.localtime(one.committed_s)),
        f"{worker} {one.trailers.get('Agent', '')}".strip(),
        microseconds(verdict.time_us) if verdict and verdict.time_us is not None else "",
        what,
        f"{one.subject}{_evidence(entry)}",
    )


def _evidence(entry: Entry) -> str:
    """Return what a merge says of its measurements, on a line of its own."""
    told = entry.submission.trailers
    names = ("Speedup", "SOL-Score", "Comparison", "Model", "Cost")
    said = [f"{name}: {told[name]}" for name in names if told.get(name)]
    return f"\n  {'; '.join(said)}" if said and entry.kind == "merge" else ""


def _json(entry: Entry) -> dict[str, object]:
    one, verdict = entry.submission, entry.verdict
    return {
        "commit": one.commit,
        "kind": entry.kind,
        "branch": one.branch.ref if one.branch else None,
        "tree": one.tree,
        "committed_s": one.committed_s,
        "subject": one.subject,
        "trailers": dict(one.trailers),
        "parents": list(one.parents),
        "status": verdict.status.value if verdict else None,
        "time_us": verdict.time_us if verdict else None,
        "reason": entry.refusal or (verdict.reason if verdict else ""),
    }
