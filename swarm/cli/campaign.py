"""The middle of `swarm run`: roles at work until the deadline, then whatever is in flight brought home."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from swarm import board
from swarm.cli.feed import Feed
from swarm.cli.state import RunState
from swarm.cli.supervise import Ended, Role, Supervisor
from swarm.cli.view import View
from swarm.errors import BadInput, Refused
from swarm.hub import Hub
from swarm.layout import RunPaths
from swarm.ledger import Ledger
from swarm.requests import requests
from swarm.role import beats

STEP_S = 0.5
DRAIN_S = 45.0
"""Longest wait for comparisons in flight after the deadline."""
QUIET_S = 2.5
"""Nothing is asked for or in flight for so long: two rounds of the planner, then it is over."""
FRESH_BEAT_S = 5.0
INTERRUPTED_STOP_S = 3.0


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a run stopped; `fault` is set if an essential role gave up."""

    reason: str
    fault: str = ""
    interrupted: bool = False


def roles_of(paths: RunPaths, state: RunState) -> list[Role]:
    """Return the roles; what is measured on another host has no watcher here."""
    run = ("--run", paths.run)
    watch = ("watch", *run)
    return [
        *([Role("watch", (*watch, "--device", state.device), essential=True)] if state.devices else []),
        Role("plan", ("plan", *run), essential=True),
        *(Role(worker, ("worker", worker, *run), essential=False) for worker in state.workers),
    ]


def work(
    paths: RunPaths, state: RunState, hub: Hub, ledger: Ledger, view: View, *, confine_to: frozenset[int]
) -> Ending:
    """Run the roles of a run until its deadline, an order to stop, or nothing is left to try.

    This process goes to the cores `confine_to` meanwhile; the roles find their own.
    """
    feed = Feed(hub, ledger, state.problems)
    supervisor = Supervisor(roles_of(paths, state), logs=paths.logs, cwd=paths.root)
    os.sched_setaffinity(0, confine_to)
    try:
        with supervisor:
            try:
                ending = _until_over(paths, state, supervisor, feed, view)
                if state.devices and not ending.fault and not paths.stop.exists():
                    _drain(paths, state, supervisor, feed, view)
                view.say("stopping the roles")
            except KeyboardInterrupt:
                supervisor.stop(supervisor.alive(), INTERRUPTED_STOP_S)
                raise
    except KeyboardInterrupt:
        return Ending("interrupted", interrupted=True)
    for news in feed.take():
        view.tell(news)
    return ending


def _until_over(paths: RunPaths, state: RunState, supervisor: Supervisor, feed: Feed, view: View) -> Ending:
    while time.time() < state.deadline_s:
        if paths.stop.exists():  # before looking at the roles: those that obey it are not missed
            return Ending("stopped on request")
        ending = _look(supervisor, view, state)
        if ending is not None:
            return ending
        if _is_finished(paths):
            return Ending("nothing is left to try")
        _show(paths, feed, view, "at work")
        time.sleep(STEP_S)
    return Ending("time is up")


def _look(supervisor: Supervisor, view: View, state: RunState) -> Ending | None:
    """Tell what became of roles; an ending if the run cannot go on without one."""
    for ended in supervisor.check():
        view.say(_sentence(ended), "yellow")
        if ended.role.essential and not ended.restarted:
            return Ending(f"`swarm {ended.role.name}` is gone", fault=ended.how)
    if not set(state.workers) & set(supervisor.alive()):
        return Ending("no worker is left", fault="every worker has ended; see the lines above")
    return None


def _drain(paths: RunPaths, state: RunState, supervisor: Supervisor, feed: Feed, view: View) -> None:
    """Stop the workers, and let watcher and planner finish what is in flight, as long as DRAIN_S."""
    view.say("time for workers is over; finishing the comparisons in flight")
    supervisor.stop(state.workers)
    deadline_s = time.time() + DRAIN_S
    quiet_since_s = time.time()
    while time.time() < deadline_s and time.time() - quiet_since_s < QUIET_S:
        for ended in supervisor.check():
            view.say(_sentence(ended), "yellow")
            if not ended.restarted:
                return
        if _is_busy(paths):
            quiet_since_s = time.time()
        if paths.stop.exists():
            return
        _show(paths, feed, view, "finishing")
        time.sleep(STEP_S)


def _is_busy(paths: RunPaths) -> bool:
    if requests(paths)[0]:
        return True
    watcher = beats(paths).get("watcher")
    if watcher is None or time.time() - watcher.at_s > FRESH_BEAT_S:
        return True  # it does not say; the drain's limit ends the wait
    return bool(watcher.facts.get("in_flight") or watcher.facts.get("pending"))


def _is_finished(paths: RunPaths) -> bool:
    planner = beats(paths).get("planner")
    return planner is not None and planner.is_alive and bool(planner.facts.get("finished"))


def _show(paths: RunPaths, feed: Feed, view: View, doing: str) -> None:
    for news in feed.take():
        view.tell(news)
    for fault in _faults(paths):
        view.warn(fault)
    try:
        table = board.read(paths.board)
    except BadInput as error:
        table, doing = None, "no new assignments"
        view.warn(f"no new assignments: {error}")
    view.show(table, feed.measured, doing)


def _faults(paths: RunPaths) -> list[str]:
    """Return what the watcher cannot have measured, and why."""
    watcher = beats(paths).get("watcher")
    if watcher is None or not watcher.is_alive:
        return []
    return list(map(str, watcher.facts.get("faults", [])))


def _sentence(ended: Ended) -> str:
    after = "started again" if ended.restarted else "not started again"
    return f"`swarm {' '.join(ended.role.arguments[:2])}` {ended.how}; {after}"


@contextmanager
def terminable() -> Iterator[None]:
    """Take SIGTERM as Ctrl-C, so that roles are stopped in order either way."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def check_ending(ending: Ending) -> None:
    """Raise what the command should end with, if the run did not end well."""
    if ending.interrupted:
        raise KeyboardInterrupt
    if ending.fault:
        raise Refused(f"{ending.reason}: {ending.fault}")
