"""`swarm init DIR`: a run root of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from swarm.durable import create_only
from swarm.errors import Refused

IGNORED = "/workspace/*\n!/workspace/.gitkeep\n/results/local/\n/results/baselines/\n"


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
def init(folder: Path) -> None:
    """Set up a run root in DIR: protocol, settings, and room for problems."""
    files = {
        **dict(_templates(resources.files("swarm") / "templates", Path())),
        Path(".gitignore"): IGNORED.encode(),
        Path("problems/.gitkeep"): b"",
        Path("results/.gitkeep"): b"",
        Path("workspace/.gitkeep"): b"",
    }
    for path in files:
        if path.name not in (".gitignore", ".gitkeep") and (folder / path).exists():
            raise Refused(f"{folder / path} is there already", remedy="choose another folder, or remove it")
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        create_only(folder / path, content)
    click.echo(f"{folder} is a run root now; put problems into {folder / 'problems'}, then: swarm run")


def _templates(folder: Traversable, below: Path) -> Iterator[tuple[Path, bytes]]:
    for item in folder.iterdir():
        if item.is_dir():
            yield from _templates(item, below / item.name)
        else:
            yield below / item.name, item.read_bytes()
