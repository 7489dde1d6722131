"""`swarm watch`, `swarm plan`, `swarm worker ID`: one role alone, in this process until told to stop."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from swarm.cli.context import check_hub, device_model_option, device_option, root_of, run_of, run_option
from swarm.cli.leash import take_leash
from swarm.errors import BadInput, Refused

if TYPE_CHECKING:
    from swarm.agents.protocol import Agent
    from swarm.cli.state import RunState
    from swarm.device import Device
    from swarm.hub import Hub
    from swarm.layout import RunPaths, RunRoot
    from swarm.ledger import Ledger
    from swarm.protocol import Protocol
    from swarm.role import Stop

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Post:
    """What every role has in hand."""

    root: RunRoot
    paths: RunPaths
    hub: Hub
    ledger: Ledger
    devices: tuple[Device, ...]
    """Those of this host that measure; every role stays off their cores."""
    device_model: str
    """What the run's verdicts are about, wherever they are measured."""
    stop: Stop
    problems: tuple[str, ...] | None
    """Those the run was started with; None, for all, if it was not started by `swarm run`."""


@click.command()
@device_option
@run_option
@click.pass_context
def watch(ctx: click.Context, device: str | None, run_name: str | None) -> None:
    """Have every commit and every wanted comparison measured.

    On the devices that the run was started with, unless others are named.
    """
    from swarm.cli.devices import describe, open_pool
    from swarm.watcher import Watcher

    with _on_duty(ctx, run_name, measures=True, device=device) as post:
        editable = _protocol(post.root).output.editable
        log.info("measuring on %s", describe(post.devices))
        with closing(open_pool(post.root, post.devices)) as pool:
            watcher = Watcher(
                post.paths, post.hub, post.ledger, pool, post.device_model, editable, problems=post.problems
            )
            watcher.run(post.stop)


@click.command()
@click.option("--rebuild", is_flag=True, help="Derive board.md again from git and results, and end.")
@device_model_option
@run_option
@click.pass_context
def plan(ctx: click.Context, rebuild: bool, device_model: str | None, run_name: str | None) -> None:
    """Hand out work, ask for comparisons, merge what won."""
    from swarm.cli.scores import score_of
    from swarm.locks import held
    from swarm.plan import LOCK, Planner

    with _on_duty(ctx, run_name, device_model=device_model) as post:
        planner = Planner(
            post.paths,
            post.hub,
            post.ledger,
            post.device_model,
            post.root.coordination,
            lambda problem, commit: score_of(
                post.root, post.hub, post.ledger, post.device_model, problem, commit
            ),
            post.problems,
        )
        if not rebuild:
            planner.run(post.stop)
            return
        try:
            with held(post.paths.lock(LOCK), timeout_s=0, purpose="plan --rebuild"):
                planner.step(rebuild=True)
        except Refused:  # a planner is at work: it derives a board that is not there by itself
            post.paths.board.unlink(missing_ok=True)


@click.command()
@click.argument("name", metavar="ID")
@click.option("--agent", type=click.Choice(["tuner"]), help="Who does the work; otherwise as in swarm.toml.")
@device_model_option
@run_option
@click.pass_context
def worker(
    ctx: click.Context, name: str, agent: str | None, device_model: str | None, run_name: str | None
) -> None:
    """Work as ID on whatever the planner assigns to it."""
    from swarm.agents.worker import Worker
    from swarm.layout import check_name

    check_name("worker", name)
    with _on_duty(ctx, run_name, device_model=device_model) as post:
        Worker(
            name,
            _agent(agent, post),
            post.paths,
            post.hub,
            post.ledger,
            _protocol(post.root),
            post.device_model,
            post.stop,
        ).run()


@contextmanager
def _on_duty(
    ctx: click.Context,
    run_name: str | None,
    *,
    measures: bool = False,
    device: str | None = None,
    device_model: str | None = None,
) -> Iterator[Post]:
    """Take the leash, take signals as requests to stop, leave the devices' cores alone, open the run."""
    from swarm.cli import state
    from swarm.cli.devices import device_model as known_model
    from swarm.device import cores_beside
    from swarm.hub import Hub
    from swarm.ledger import Ledger
    from swarm.role import Stop

    paths, root = run_of(ctx, run_name), root_of(ctx)
    stop = Stop(paths.stop).on_signals()
    take_leash()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    check_hub(paths)
    if device_model is not None:
        device_model = known_model(device_model)
    started = state.find(paths)
    if measures:
        devices = _devices_here(root, started, device)
    else:
        devices = _devices_to_spare(root, started, device_model)
    os.sched_setaffinity(0, cores_beside(devices))
    if stop():
        raise Refused(
            f"run {paths.run!r} is being stopped", where=str(paths.stop), remedy="wait, or delete it"
        )
    with Hub(paths) as hub, Ledger(paths) as ledger:
        model = _model(started, devices) if device_model is None else device_model
        problems = None if started is None else started.problems
        yield Post(root, paths, hub, ledger, devices, model, stop, problems)


def _devices_here(root: RunRoot, started: RunState | None, device: str | None) -> tuple[Device, ...]:
    """Return the devices of this host to measure on."""
    from swarm.cli.devices import choose, seeds_of
    from swarm.config import load_config

    config = load_config(root).run
    if started is None:
        return tuple(choose(device or config.device, config.language, seeds_of(root)).devices)
    if device is None and not started.devices:
        raise Refused(
            f"this run is measured elsewhere, on {started.device_model}",
            remedy="take it there by `swarm pending --bundle`, or name a --device of this host",
        )
    return tuple(choose(device or started.device, started.language, ()).devices)


def _devices_to_spare(
    root: RunRoot, started: RunState | None, device_model: str | None
) -> tuple[Device, ...]:
    """Return the devices whose cores a role that does not measure leaves alone."""
    if started is not None:
        return started.devices
    return () if device_model else _devices_here(root, None, None)


def _model(started: RunState | None, devices: tuple[Device, ...]) -> str:
    return devices[0].model if started is None or devices != started.devices else started.device_model


def _protocol(root: RunRoot) -> Protocol:
    from swarm.protocol import read_protocol

    return read_protocol(root.coordination.read_bytes(), root.coordination.name)


def _agent(name: str | None, post: Post) -> Agent:
    from swarm.config import load_config

    kind = name or load_config(post.root).run.agent
    if kind != "tuner":
        raise BadInput(f"there is no agent {kind!r}", remedy="use tuner")
    from swarm.agents.tuner import Tuner  # brings optuna

    return Tuner()
