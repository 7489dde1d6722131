"""`swarm status`: board, roles, device and pace. `swarm stop`: ask every role of a run to end."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from swarm.cli.context import check_hub, json_option, print_json, run_of, run_option, stderr, stdout
from swarm.durable import write_atomic
from swarm.errors import BadInput, Refused
from swarm.report.render import microseconds

if TYPE_CHECKING:
    from rich.console import Group

    from swarm.cli.state import RunState
    from swarm.layout import RunPaths
    from swarm.locks import Owner
    from swarm.role import Beat

PACE_WINDOW_S = 300.0
REFRESH_S = 1.0
STOP_TIMEOUT_S = 60.0
"""`swarm run` may be in the middle of its report; roles alone need 5 s."""


@click.command()
@click.option("--watch", "keep_on", is_flag=True, help="Refresh every second until Ctrl-C.")
@run_option
@json_option
@click.pass_context
def status(ctx: click.Context, keep_on: bool, run_name: str | None, as_json: bool) -> None:
    """Show the board, the roles, the device and the pace of a run."""
    paths = run_of(ctx, run_name)
    if as_json:
        print_json(snapshot(paths))
        return
    if not keep_on:
        stdout().print(_render(snapshot(paths)))
        return
    from rich.live import Live

    with Live(_render(snapshot(paths)), console=stdout(), auto_refresh=False, screen=False) as live:
        while True:
            time.sleep(REFRESH_S)
            live.update(_render(snapshot(paths)), refresh=True)


@click.command()
@run_option
@click.pass_context
def stop(ctx: click.Context, run_name: str | None) -> None:
    """Stop a run: every role ends after the step it is in."""
    paths = run_of(ctx, run_name)
    run = _run_owner(paths)
    if not (waited := _alive(paths, run)):
        click.echo(f"nothing of run {paths.run!r} is running")
        return
    write_atomic(paths.stop, json.dumps({"at_s": time.time()}).encode())
    if run is not None and _prepares(paths, run):  # it looks for no file then
        _interrupt(run)
    try:
        deadline = time.monotonic() + STOP_TIMEOUT_S
        with stderr().status(f"stopping {', '.join(waited)}"):
            while still := _alive(paths, run):
                if time.monotonic() > deadline:
                    raise Refused(f"still running after {STOP_TIMEOUT_S:.0f} s: {', '.join(still)}")
                time.sleep(0.1)
    finally:
        paths.stop.unlink(missing_ok=True)
    click.echo(f"run {paths.run!r} is stopped; `swarm run` continues it")


RUN = "swarm run"


def _run_owner(paths: RunPaths) -> Owner | None:
    """Return the process that is `swarm run`, if one is; it is there before any role and after the last."""
    from swarm.locks import is_alive, owner

    found = owner(paths.lock("run"))
    return found if found is not None and is_alive(found) else None


def _alive(paths: RunPaths, run: Owner | None) -> list[str]:
    """Name what of a run still runs: `run` itself and its roles."""
    from swarm.role import beats

    names = [beat.role for beat in beats(paths).values() if beat.is_alive]
    return [RUN, *names] if run is not None and run == _run_owner(paths) else names


def _prepares(paths: RunPaths, run: Owner) -> bool:
    """Say whether `run` has no role yet."""
    from swarm.role import beats

    return all(beat.at_s < run.since_s for beat in beats(paths).values())


def _interrupt(run: Owner) -> None:
    if run.host == socket.gethostname():
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(run.pid, signal.SIGTERM)


def snapshot(paths: RunPaths) -> dict[str, Any]:
    """Return what is known about a run now; BadInput if there is no such run."""
    from swarm import board
    from swarm.ledger import Ledger
    from swarm.role import beats

    check_hub(paths)
    now_s = time.time()
    alive = beats(paths)
    started = _started(paths)
    fault = None
    try:
        table = board.read(paths.board)
    except BadInput as error:
        table, fault = None, str(error)
    with Ledger(paths) as ledger:
        facts = ledger.facts()
    recent = [f for f in facts if f.created_s >= now_s - PACE_WINDOW_S]
    return {
        "run": paths.run,
        "doing": _doing(paths, alive),
        "problems": [asdict(row) for row in table.problems] if table else [],
        "workers": [
            {
                "worker": row.worker,
                "state": row.state,
                "branch": row.branch.ref.removeprefix("refs/heads/") if row.branch else None,
                "since_s": row.since_s,
            }
            for row in (table.workers if table else ())
        ],
        "board_fault": fault,
        "roles": [
            {"role": b.role, "pid": b.pid, "alive": b.is_alive, "age_s": round(now_s - b.at_s, 1), **b.facts}
            for b in alive.values()
        ],
        "device_model": None if started is None else started.device_model,
        "devices": _devices(started, alive.get("watcher")),
        "verdicts": len(facts),
        "verdicts_per_minute": round(len(recent) / (PACE_WINDOW_S / 60), 2),
        "measured_s": round(sum(f.measured_s for f in facts), 1),
        "left_s": None if started is None else max(0.0, round(started.deadline_s - now_s, 1)),
    }


def _doing(paths: RunPaths, roles: Mapping[str, Beat]) -> str:
    """Say what a run does as a whole: one that prepares has no role yet, one that is over has none left."""
    run = _run_owner(paths)
    if run is not None and _prepares(paths, run):
        return "preparing"
    if run is not None or any(beat.is_alive for beat in roles.values()):
        return "running"
    return "not running"


DOING = {
    "preparing": "; preparing: epochs, peaks and baselines come first",
    "running": "",
    "not running": "; not running: `swarm run` continues it",
}


def _started(paths: RunPaths) -> RunState | None:
    from swarm.cli import state

    try:
        return state.load(paths)
    except BadInput:
        return None  # its roles were started one by one


def _devices(started: RunState | None, watcher: Beat | None) -> list[dict[str, Any]]:
    """Return what each device does, as far as the run's record and the watcher's last beat tell."""
    known = {} if started is None else {device.uuid: device.model for device in started.devices}
    idle = {"job": None, "done": 0, "busy_s": 0.0}
    busy: dict[str, dict[str, Any]] = {}
    if watcher is not None:
        with suppress(KeyError, TypeError, ValueError):  # whoever wrote that was no watcher of ours
            for one in watcher.facts.get("devices", []):
                job = one["job"] if watcher.is_alive else None
                busy[str(one["uuid"])] = {
                    "job": job, "done": int(one["done"]), "busy_s": float(one["busy_s"])
                }  # fmt: skip
    return [{"device": uuid, "model": known.get(uuid), **busy.get(uuid, idle)} for uuid in (busy or known)]


def _render(now: dict[str, Any]) -> Group:
    from rich.console import Group
    from rich.text import Text

    is_timed = now["left_s"] is not None and now["doing"] == "running"
    doing = f"; {now['left_s'] / 60:.1f} minutes left" if is_timed else DOING[now["doing"]]
    head = (
        f"run {now['run']}: {now['verdicts']} verdicts, {now['verdicts_per_minute']:g} a minute lately,"
        f" {now['measured_s']:.0f} s on the device{doing}"
    )
    parts: list[Any] = [Text(head, style="bold")]
    if now["board_fault"]:
        parts.append(Text(f"no new assignments: {now['board_fault']}", style="red"))
    for role in now["roles"]:
        faults = role.get("faults")
        if role["alive"] and isinstance(faults, list):
            parts += [Text(str(fault), style="yellow") for fault in faults]
    if now["device_model"] and not now["devices"]:
        parts.append(
            Text(f"measured elsewhere, on {now['device_model']}: swarm pending --bundle", style="dim")
        )
    parts += [Text(), _table(now["problems"], PROBLEM_COLUMNS)]
    parts += [Text(), _table(now["workers"], ("worker", "state", "branch"))]
    parts += [Text(), _table(now["roles"], ("role", "pid", "alive", "age_s"))]
    if now["devices"]:
        parts += [Text(), _table(now["devices"], ("device", "model", "job", "done", "busy_s"))]
    return Group(*parts)


PROBLEM_COLUMNS = (
    "problem",
    "state",
    "champion",
    "time_us",
    "t_sol_us",
    "verdicts",
    "passed",
    "merges",
    "workers",
)


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        is_number = any(isinstance(row[column], int | float) for row in rows)
        table.add_column(column, justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*(Text(_cell(column, row[column])) for column in columns))
    return table


def _cell(column: str, value: object) -> str:
    if value is None:
        return "–"
    if column in ("champion", "job"):
        return str(value)[:10]
    if column == "busy_s":
        return f"{value:.0f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return microseconds(value) if isinstance(value, float) else str(value)
