"""`swarm watch`, `swarm plan`, `swarm worker ID`: one role alone, in this process until told to stop."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from swarm.cli.context import check_hub, root_of, run_of, run_option
from swarm.cli.leash import take_leash
from swarm.errors import BadInput, Refused

if TYPE_CHECKING:
    from swarm.agents.protocol import Agent
    from swarm.device import Device
    from swarm.hub import Hub
    from swarm.layout import RunPaths, RunRoot
    from swarm.ledger import Ledger
    from swarm.protocol import Protocol
    from swarm.role import Stop


@dataclass(frozen=True, slots=True)
class Post:
    """What every role has in hand."""

    root: RunRoot
    paths: RunPaths
    hub: Hub
    ledger: Ledger
    device: Device
    stop: Stop
    problems: tuple[str, ...] | None
    """Those the run was started with; None, for all, if it was not started by `swarm run`."""


@click.command()
@run_option
@click.pass_context
def watch(ctx: click.Context, run_name: str | None) -> None:
    """Have every commit and every wanted comparison measured."""
    from swarm.cli.devices import open_pool
    from swarm.watcher import Watcher

    with _on_duty(ctx, run_name) as post:
        editable = _protocol(post.root).output.editable
        with closing(open_pool(post.root, post.device)) as pool:
            watcher = Watcher(
                post.paths, post.hub, post.ledger, pool, post.device.model, editable, problems=post.problems
            )
            watcher.run(post.stop)


@click.command()
@click.option("--rebuild", is_flag=True, help="Derive board.md again from git and results, and end.")
@run_option
@click.pass_context
def plan(ctx: click.Context, rebuild: bool, run_name: str | None) -> None:
    """Hand out work, ask for comparisons, merge what won."""
    from swarm.cli.scores import score_of
    from swarm.locks import held
    from swarm.plan import LOCK, Planner

    with _on_duty(ctx, run_name) as post:
        planner = Planner(
            post.paths,
            post.hub,
            post.ledger,
            post.device.model,
            post.root.coordination,
            lambda problem, commit: score_of(post.root, post.hub, post.ledger, post.device, problem, commit),
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
@run_option
@click.pass_context
def worker(ctx: click.Context, name: str, agent: str | None, run_name: str | None) -> None:
    """Work as ID on whatever the planner assigns to it."""
    from swarm.agents.worker import Worker
    from swarm.layout import check_name

    check_name("worker", name)
    with _on_duty(ctx, run_name) as post:
        Worker(
            name,
            _agent(agent, post),
            post.paths,
            post.hub,
            post.ledger,
            _protocol(post.root),
            post.device.model,
            post.stop,
        ).run()


@contextmanager
def _on_duty(ctx: click.Context, run_name: str | None) -> Iterator[Post]:
    """Take the leash, take signals as requests to stop, leave the device's cores alone, open the run."""
    from swarm.device import cpu_device, other_cores
    from swarm.hub import Hub
    from swarm.ledger import Ledger
    from swarm.role import Stop

    paths, root = run_of(ctx, run_name), root_of(ctx)
    stop = Stop(paths.stop).on_signals()
    take_leash()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    device = cpu_device()
    os.sched_setaffinity(0, other_cores())
    check_hub(paths)
    if stop():
        raise Refused(
            f"run {paths.run!r} is being stopped", where=str(paths.stop), remedy="wait, or delete it"
        )
    with Hub(paths) as hub, Ledger(paths) as ledger:
        yield Post(root, paths, hub, ledger, device, stop, _problems(paths))


def _problems(paths: RunPaths) -> tuple[str, ...] | None:
    from swarm.cli import state

    return state.load(paths).problems if paths.state.exists() else None


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
