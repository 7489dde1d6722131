"""`swarm run`: prepare, put the roles to work, bring home what is in flight, report. Composition only."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from swarm.cli.context import (
    Positive,
    device_model_option,
    device_option,
    json_option,
    root_of,
    run_of,
    run_option,
)
from swarm.errors import BadInput, Refused

if TYPE_CHECKING:
    from swarm.cli.devices import Choice
    from swarm.cli.state import RunState
    from swarm.config import Config
    from swarm.layout import RunPaths, RunRoot


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for: swarm.toml with the options on top."""

    agent: str
    choice: Choice
    workers: int
    minutes: float
    problems: tuple[str, ...]
    baseline_s: float


@click.command()
@run_option
@click.option("--agent", type=click.Choice(["tuner"]), help="Who works.")
@click.option(
    "--language", help="Which seeds to start from: cuda, cuda_cpp, cute_dsl, triton, pytorch or cpp."
)
@device_option
@device_model_option
@click.option("--workers", type=click.IntRange(1, 256), help="How many work side by side.")
@click.option("--problems", metavar="A,B", help="Names or patterns, separated by commas.")
@click.option("--minutes", type=Positive(), help="When to stop, from now on.")
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    run_name: str | None,
    agent: str | None,
    language: str | None,
    device: str | None,
    device_model: str | None,
    workers: int | None,
    problems: str | None,
    minutes: float | None,
    as_json: bool,
) -> None:
    """Run the swarm until time is up, and print the scoreboard.

    What is not given comes from swarm.toml. A run of the same name is continued. Where there is a GPU, it is
    used; --device cpu leaves it alone. With --device-model nothing is measured here: see `swarm pending`.
    """
    from swarm.cli import state
    from swarm.config import choose_problems, load_config
    from swarm.locks import held

    root, paths = root_of(ctx), run_of(ctx, run_name)
    config = load_config(root)
    patterns = config.run.problems if problems is None else tuple(filter(None, problems.split(",")))
    if not patterns:
        raise BadInput("no problem is named", where="--problems", remedy="name some, or leave it out for all")
    names = choose_problems(patterns, root.problems)
    choice = _choice(root, state.before(paths), config, language, device, device_model, names)
    order = Order(
        agent or config.run.agent,
        choice,
        workers or config.run.workers,
        minutes or config.run.minutes,
        _fitting(root, names, patterns, choice),
        config.budget.baseline_s,
    )
    with held(paths.lock("run"), timeout_s=0, purpose="swarm run"):
        _run(root, paths, order, as_json)


def _choice(
    root: RunRoot,
    before: RunState | None,
    config: Config,
    language: str | None,
    device: str | None,
    device_model: str | None,
    names: Sequence[str],
) -> Choice:
    """Return what to measure on and in which language: as was said, else as the run was started before."""
    from swarm.cli.devices import AUTO, choose, choose_elsewhere, seeds_of
    from swarm.device import why_no_gpu

    language, device = language or config.run.language, device or config.run.device
    if before is not None:
        if language not in (AUTO, before.language):
            raise Refused(
                f"this run is in {before.language}, and a run has one language",
                where=f"--language {language}",
                remedy="give another run a name by --run, or leave --language out",
            )
        language = before.language
        if device == AUTO and device_model is None and not before.devices:
            device_model = before.device_model
    seeds = seeds_of(root, names)
    if device_model is not None:
        return choose_elsewhere(device_model, language, seeds)
    choice = choose(device, language, seeds)
    if before is None or device != AUTO or choice.device.kind != "cpu" or why_no_gpu():
        return choice
    return replace(choice, remark=f"{choice.remark}; the GPU is not used: this run is in {language}")


def _fitting(root: RunRoot, names: Sequence[str], patterns: Sequence[str], choice: Choice) -> tuple[str, ...]:
    """Return the names without those that a pattern chose, but that this run is not for.

    They lack a seed in its language, or workloads for its device; what was named itself stays, to be told so.
    """
    device, language = choice.device, choice.language

    def fits(name: str) -> bool:
        folder = root.problem(name)
        has_workloads = device.kind != "cpu" or (folder / device.workloads_file).exists()
        return has_workloads and (folder / "seed" / language).is_dir()

    found = tuple(name for name in names if name in patterns or fits(name))
    if not found:
        raise BadInput(
            f"no problem has a seed in {language} and workloads for a {device.kind}",
            where=str(root.problems),
            remedy=f"add seed/{language}/ to one, or choose another --language",
        )
    return found


def _run(root: RunRoot, paths: RunPaths, order: Order, as_json: bool) -> None:
    from swarm.cli import state
    from swarm.cli.campaign import check_ending, terminable, work
    from swarm.cli.prepare import open_epochs
    from swarm.cli.references import measure_references
    from swarm.cli.report import publish
    from swarm.cli.view import View
    from swarm.device import cores_beside
    from swarm.hub import Hub
    from swarm.ledger import Ledger

    started_s = time.time()
    deadline_s = started_s + 60 * order.minutes
    choice = order.choice
    available = os.sched_getaffinity(0)
    paths.stop.unlink(missing_ok=True)
    with terminable(), Hub(paths) as hub, Ledger(paths) as ledger:
        with View(started_s, deadline_s, order.problems) as view:
            view.say(choice.remark)
            ready, broken = open_epochs(root, hub, choice.device, choice.language, order.problems, view)
            if not ready:
                raise BadInput(f"none of {len(order.problems)} problems can be run", remedy="see above")
            if choice.devices:
                measure_references(root, choice.device, ready, order.baseline_s, view)
            workers = tuple(f"w{number}" for number in range(1, order.workers + 1))
            names = tuple(problem.name for problem in ready)
            now = state.RunState(
                order.agent,
                choice.language,
                workers,
                names,
                started_s,
                deadline_s,
                choice.device_model,
                tuple(choice.devices),
            )
            state.save(paths, now)
            ending = work(paths, now, hub, ledger, view, confine_to=cores_beside(choice.devices))
        os.sched_setaffinity(0, available)
        publish(root, paths, hub, ledger, as_json=as_json, with_pictures=not ending.interrupted)
    check_ending(ending)
    if broken:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        raise BadInput(f"left out: {broken[0]}{more}")
