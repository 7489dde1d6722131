"""swarm.toml: how runs are operated. What counts as a result is the protocol's, never this file's."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from swarm.errors import BadInput
from swarm.layout import RunRoot, check_name
from swarm.problem import no_problem
from swarm.schema import Float, Frozen, Int, decode, parse, read_toml, shown, suggest, toml_fields, wrong
from swarm.solution import Language

Positive = Annotated[Float, Field(gt=0, allow_inf_nan=False)]


class RunDefaults(Frozen):
    """[run]: what `swarm run` does unless its options say otherwise."""

    name: str = "local"
    agent: Literal["tuner"] = "tuner"
    language: str = "auto"
    """auto: `cuda` where a GPU is and a seed for it, otherwise what the device runs."""
    device: str = Field(default="auto", min_length=1)
    """auto: what the language runs on; otherwise as `--device` names them."""
    workers: Int = Field(default=2, ge=1, le=256)
    minutes: Positive = 3.75
    problems: tuple[str, ...] = Field(default=("*",), min_length=1)

    @field_validator("language", mode="before")
    @classmethod
    def _known_language(cls, raw: object) -> object:
        known = ("auto", *Language)
        if raw not in known:
            raise wrong("", f"language {shown(raw)} is unknown", suggest(str(raw), known))
        return raw


class Budget(Frozen):
    """[budget]: what preparing may cost."""

    baseline_s: Positive = 60.0


class Config(Frozen):
    """swarm.toml; a key that is not there has the value shown here."""

    run: RunDefaults = RunDefaults()
    budget: Budget = Budget()


def load_config(root: RunRoot) -> Config:
    """Read swarm.toml of a run root."""
    return parse_config(root.config.read_bytes(), root.config.name)


def parse_config(data: bytes, where: str = "swarm.toml") -> Config:
    text = decode(data, where)
    locate = toml_fields(text, where)
    config = parse(Config, read_toml(text, where), locate)
    try:
        check_name("run", config.run.name)
    except BadInput as error:
        raise BadInput(error.what, where=locate(("run", "name")), remedy=error.remedy) from None
    return config


def choose_problems(patterns: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """Return the names in `folder` that the patterns select, sorted; each must match something."""
    names = sorted(item.name for item in folder.glob("*/") if not item.name.startswith((".", "_")))
    chosen: set[str] = set()
    for pattern in patterns:
        matches = [name for name in names if fnmatchcase(name, pattern)]
        if not matches and not names:
            remedy = "put a folder there; docs/problems.md of kernel-swarm says what it holds"
            raise BadInput("no problem is here yet", where=str(folder), remedy=remedy)
        if not matches:
            raise no_problem(pattern, folder, names)
        chosen.update(matches)
    return tuple(sorted(chosen))
