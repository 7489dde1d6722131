"""What every command shares: the run root, `--run`, `--json`, and the two consoles."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from swarm.layout import RunPaths, RunRoot, find_root

if TYPE_CHECKING:
    from rich.console import Console

DEFAULT_RUN = "local"

Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(command)


def run_option(command: Command) -> Command:
    return click.option(
        "--run",
        "run_name",
        default=DEFAULT_RUN,
        envvar="SWARM_RUN",
        show_default=True,
        help="The run's name: workspace/NAME and results/NAME.",
    )(command)


def root_of(ctx: click.Context) -> RunRoot:
    """Return the run root that `--root`, or else the current folder, lies in."""
    chosen = ctx.find_root().obj
    return find_root((chosen if isinstance(chosen, Path) else Path.cwd()).resolve())


def run_of(ctx: click.Context, name: str) -> RunPaths:
    return root_of(ctx).run(name)


def print_json(data: object) -> None:
    click.echo(json.dumps(data, indent=1, allow_nan=False))


def stdout() -> Console:
    """Return the console for what was asked for."""
    from rich.console import Console  # 30 ms that `swarm --help` and `--json` should not cost

    # Without a terminal rich assumes 80 columns and would fold a table that a file has room for.
    return Console(highlight=False, width=None if sys.stdout.isatty() else 140)


def stderr() -> Console:
    """Return the console for progress and remarks; stdout stays clean for pipes."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 140)
