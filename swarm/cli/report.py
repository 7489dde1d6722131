"""`swarm report`: write scoreboard and page of a run."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from swarm.cli.context import (
    check_hub,
    json_option,
    print_table,
    root_of,
    run_of,
    run_option,
    stderr,
    stdout,
)
from swarm.errors import BadInput

if TYPE_CHECKING:
    from swarm.hub import Hub
    from swarm.layout import RunPaths, RunRoot
    from swarm.ledger import Ledger
    from swarm.report.collect import Collected
    from swarm.report.scoreboard import Scoreboard


@click.command()
@run_option
@json_option
@click.pass_context
def report(ctx: click.Context, run_name: str | None, as_json: bool) -> None:
    """Write scoreboard and report.html of a run, print the scoreboard."""
    from swarm.hub import Hub
    from swarm.ledger import Ledger

    root, paths = root_of(ctx), run_of(ctx, run_name)
    check_hub(paths)
    with Hub(paths) as hub, Ledger(paths) as ledger:
        publish(root, paths, hub, ledger, as_json=as_json)


def publish(
    root: RunRoot,
    paths: RunPaths,
    hub: Hub,
    ledger: Ledger,
    *,
    as_json: bool,
    with_pictures: bool = True,
) -> None:
    """Write scoreboard.json, scoreboard.md and report.html, and print the scoreboard."""
    from swarm.durable import write_atomic
    from swarm.report import render, scoreboard

    with stderr().status("writing the report"):
        collected, remarks = _collect(root, paths, hub, ledger)
        board = scoreboard.scoreboard(paths.run, collected.device, collected.histories)
        warnings = (*collected.warnings, *remarks)
        write_atomic(paths.scoreboard_json, scoreboard.to_json(board).encode())
        write_atomic(paths.scoreboard_md, render.markdown(board, warnings).encode())
        if with_pictures:
            write_atomic(paths.report_html, _page(board, collected, warnings).encode())
            hub.bundle()
    if as_json:
        click.echo(scoreboard.to_json(board), nl=False)
        return
    _print(board, warnings)
    if with_pictures:
        click.echo(f"\n{paths.report_html}")


def _collect(root: RunRoot, paths: RunPaths, hub: Hub, ledger: Ledger) -> tuple[Collected, list[str]]:
    from swarm.baseline import load_baseline
    from swarm.report.collect import collect

    device = _device_of(paths, ledger)
    times, remarks = {}, []
    for problem in hub.champions():
        try:
            baseline = load_baseline(root, device, problem)
        except BadInput as error:
            remarks.append(str(error))
            continue
        if baseline is not None:
            times[problem] = baseline.times_us
            remarks += baseline.remarks
    return collect(hub, ledger, device=device, baselines=times), remarks


def _device_of(paths: RunPaths, ledger: Ledger) -> str:
    """Return the device model of the newest verdict, or else the one that the run was started for."""
    from swarm.cli import state
    from swarm.device import cpu_device

    newest = max(ledger.facts(), key=lambda fact: fact.created_s, default=None)
    if newest is not None and newest.device_model:
        return newest.device_model
    started = state.find(paths)
    return cpu_device().model if started is None else started.device_model


def _page(board: Scoreboard, collected: Collected, warnings: Iterable[str]) -> str:
    from swarm.report import plots, render

    return render.html(
        render.Page(
            board,
            collected.histories,
            collected.comparisons,
            collected.conditions,
            tuple(warnings),
            plots.progress_svg(collected.histories),
            plots.scores_svg(collected.histories),
            time.strftime("%Y-%m-%d %H:%M %Z"),
        )
    )


def _print(board: Scoreboard, warnings: Iterable[str]) -> None:
    from swarm.report import render
    from swarm.report.scoreboard import summary

    right = frozenset(render.HEADINGS[1:9])
    print_table(render.HEADINGS, [render.cells(row) for row in board.problems], right=right)
    out = stdout()
    out.print(f"\n{render.summary_line(summary(board))}", soft_wrap=True)
    for warning in warnings:
        out.print(f"! {warning}", style="yellow", markup=False, soft_wrap=True)
