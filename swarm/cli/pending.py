"""`swarm pending`: what a run still wants measured, listed, or as one file for a host without a network."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from swarm.cli.context import check_hub, json_option, print_json, print_table, root_of, run_of, run_option
from swarm.errors import BadInput

if TYPE_CHECKING:
    from swarm.bundle import Part
    from swarm.layout import RunPaths, RunRoot
    from swarm.ledger import Ledger
    from swarm.pending import Pending

ANY = "any"


@click.command()
@click.option(
    "--bundle",
    "file",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write all of it to this file, for `swarm bench --bundle` elsewhere.",
)
@click.option(
    "--device-model",
    metavar="MODEL",
    help="What has no verdict on this model; `any`: everything. Otherwise the run's own, or the newest "
    "verdict's, or any.",
)
@run_option
@json_option
@click.pass_context
def pending(
    ctx: click.Context, file: Path | None, device_model: str | None, run_name: str | None, as_json: bool
) -> None:
    """List commits without a verdict and comparisons that are wanted, or put them into a file."""
    from swarm.hub import Hub
    from swarm.ledger import Ledger
    from swarm.pending import pending as find
    from swarm.protocol import read_protocol

    root, paths = root_of(ctx), run_of(ctx, run_name)
    check_hub(paths)
    protocol = read_protocol(root.coordination.read_bytes(), root.coordination.name)
    with Hub(paths) as hub, Ledger(paths) as ledger:
        model = _model(device_model, paths, ledger)
        found = find(paths, hub, ledger, protocol, model)
    baselines = [part.facts.name for part in found.parts if not _has_baseline(root, model, part)]
    if file is not None:
        _write(file, root, paths.run, found, model, baselines)
    if as_json:
        print_json(_as_json(found, model, baselines, file))
    else:
        _print(found, model, baselines, file)


def _model(chosen: str | None, paths: RunPaths, ledger: Ledger) -> str | None:
    """Return the device model to look for; None for any."""
    from swarm.cli import state
    from swarm.layout import NAME
    from swarm.peaks_table import model_of

    if chosen is None and (started := state.find(paths)) is not None:
        chosen = started.device_model
    if chosen is None:
        newest = max(ledger.facts(), key=lambda fact: fact.created_s, default=None)
        chosen = newest.device_model if newest is not None else ""
    if chosen in (ANY, ""):
        return None
    model = model_of(chosen)
    if not NAME.fullmatch(model):
        raise BadInput(f"{chosen!r} is not a device model", remedy="`swarm doctor` on that host says it")
    return model


def _has_baseline(root: RunRoot, model: str | None, part: Part) -> bool:
    """Say whether a baseline of the model is on file for the problem's frozen files."""
    from swarm.baseline import load_baseline
    from swarm.contents import files_hash
    from swarm.problem import problem_from_files
    from swarm.verdict import JUDGE_VERSION

    if model is None:
        return False
    try:
        stored = load_baseline(root, model, part.facts.name)
        files = problem_from_files(part.problem_files, part.facts.name).files
    except BadInput:
        return False
    of_these = (files_hash(files), JUDGE_VERSION)
    return stored is not None and stored.is_complete and (stored.files, stored.judge_version) == of_these


def _write(
    file: Path, root: RunRoot, run: str, found: Pending, model: str | None, baselines: list[str]
) -> None:
    from swarm import bundle
    from swarm.config import load_config
    from swarm.pending import bundle_of

    if not found.parts:
        raise BadInput("nothing is pending, so there is nothing to put into a bundle")
    budget_s = load_config(root).budget.baseline_s
    bundle.write(file, bundle_of(run, found, model, baselines, budget_s, time.time()))


def _as_json(found: Pending, model: str | None, baselines: list[str], file: Path | None) -> object:
    return {
        "device_model": model,
        "problems": [
            {
                "problem": part.facts.name,
                "epoch": part.epoch,
                "champion": part.facts.champion,
                "verdicts": [
                    {"commit": part.trees[tree].commit, "tree": tree, "branch": _branch(part, tree)}
                    for tree in part.pending
                ],
                "comparisons": [
                    {"id": one.id, "champion": one.champion, "candidate": one.candidate}
                    for one in part.wanted
                ],
                "baseline": part.facts.name in baselines,
            }
            for part in found.parts
        ],
        "faults": list(found.faults),
        "bundle": None if file is None else str(file),
    }


def _print(found: Pending, model: str | None, baselines: list[str], file: Path | None) -> None:
    rows = []
    for part in found.parts:
        name = part.facts.name
        rows += [
            (name, "verdict", part.trees[tree].commit[:10], _branch(part, tree)) for tree in part.pending
        ]
        rows += [(name, "comparison", one.candidate[:10], one.id) for one in part.wanted]
        if not part.pending and not part.wanted:
            rows.append((name, "comparison", "", "as the policy asks"))
        if name in baselines:
            rows.append((name, "baseline", "", ""))
    if rows:
        print_table(("problem", "wanted", "commit", ""), rows)
    what = f"{found.verdicts} verdicts and {found.comparisons} comparisons wanted"
    click.echo(f"{what}, on {model or 'any device'}" + ("" if file is None else f": {file}"))
    for fault in found.faults:
        click.echo(f"! {fault}", err=True)


def _branch(part: Part, tree: str) -> str:
    branch = next((trial.branch for trial in part.facts.trials if trial.tree == tree), None)
    return "" if branch is None else f"{branch.worker}-{branch.number}"
