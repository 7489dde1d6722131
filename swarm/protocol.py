"""COORDINATION.md as the code obeys it: five fenced toml blocks; a mistake is reported with its line.

Every key must be there: a default hidden in code would be a rule that agents cannot read. What the rules
mean is enforced elsewhere: the tree by `solution`, measuring by the judge, the rest by board and planner.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from swarm.errors import BadInput
from swarm.schema import Float, Frozen, Int, Loc, decode, parse, read_toml, suggest, toml_fields, wrong
from swarm.verdict import Trust

FROZEN_BLOCKS = ("output", "rules", "tests")
BLOCKS = (*FROZEN_BLOCKS, "board", "planner")

Count = Annotated[Int, Field(ge=1)]
Share = Annotated[Float, Field(gt=0, lt=1)]
Seconds = Annotated[Float, Field(gt=0, allow_inf_nan=False)]


class Output(Frozen):
    """[output]: what a worker may change, how much of it, and how its commits end."""

    editable: tuple[str, ...] = Field(min_length=1)
    max_files: Count
    max_file_bytes: Count
    max_total_bytes: Count
    trailers: tuple[str, ...]
    manifest: Literal[1]

    @field_validator("trailers")
    @classmethod
    def _trailer_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not re.fullmatch(r"[A-Z][A-Za-z-]*", name):
                raise wrong(
                    "", f"trailer {name!r} is not allowed", "use letters and '-', the first one upper-case"
                )
        return names

    def trailing(self, trailers: Mapping[str, str]) -> dict[str, str]:
        """Return the trailers that a commit gets: those of the block that have a value, in its order."""
        return {name: trailers[name] for name in self.trailers if trailers.get(name)}


class Forbidden(Frozen):
    """A construct that no source may contain outside its comments."""

    name: str = Field(min_length=1)
    pattern: str
    why: str = Field(min_length=1)

    @field_validator("pattern")
    @classmethod
    def _is_a_regex(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise wrong("", f"{pattern!r} is not a regular expression: {error}", "correct it") from None
        return pattern


class Rules(Frozen):
    """[rules]: the languages, what sources may contain, and the limits they run under."""

    languages: tuple[str, ...] = Field(min_length=1)
    compile_options: dict[str, tuple[str, ...]]
    imports: dict[str, tuple[str, ...]]
    """Per language: the headers or modules a source may name besides the tree's own."""
    forbidden: dict[str, tuple[Forbidden, ...]]
    compile_timeout_s: Seconds
    run_timeout_s: Seconds
    memory_gib: Seconds
    min_sandbox: Literal["process-group", "namespaces", "bubblewrap"]

    @model_validator(mode="after")
    def _only_known_languages(self) -> Rules:
        for field in ("compile_options", "imports", "forbidden"):
            table: dict[str, Any] = getattr(self, field)
            for language in table:
                if language not in self.languages:
                    raise wrong(f"{field}.{language}", "not a language", suggest(language, self.languages))
            for language in self.languages:
                if language not in table:
                    raise wrong(field, f"nothing for language {language!r}", f"add {language} = []")
        return self


class Tests(Frozen):
    """[tests]: when a solution counts as correct, how it is timed, and when it counts as faster."""

    __test__ = False  # pytest would take the name for a test case

    rounds: Count
    atol: Float = Field(ge=0, allow_inf_nan=False)
    rtol: Float = Field(ge=0, allow_inf_nan=False)
    required_matched_ratio: Float = Field(gt=0, le=1)
    min_calls: Count
    max_calls: Count
    ci_goal: Share
    """Half width of the 95 % interval, as a share of the time, at which timing stops."""
    budget_s: Seconds
    """Per workload, for checking and timing together."""
    compared_calls: tuple[Count, Count]
    """(n, of): n of every `of` calls are compared where the reference is slow."""
    slow_reference_ms: Seconds
    flush: Literal["clean", "dirty"]
    min_trust: Trust
    quads: Count
    processes_per_tree: Count
    confidence: Share
    minimum_effect: tuple[tuple[Float, Float], ...] = Field(min_length=1)
    """(times below this many microseconds, least relative gain), ascending; the last bound is inf."""
    max_workload_slowdown: Share
    confirmations: Annotated[Int, Field(ge=0)]

    @model_validator(mode="after")
    def _is_ordered(self) -> Tests:
        if self.min_calls > self.max_calls:
            raise wrong("min_calls", f"{self.min_calls} is above max_calls", f"use at most {self.max_calls}")
        if self.compared_calls[0] > self.compared_calls[1]:
            raise wrong(
                "compared_calls", "more calls are compared than there are", "write [n, of] with n <= of"
            )
        if self.quads < self.processes_per_tree:
            raise wrong("quads", f"{self.quads} is below processes_per_tree", "use at least as many")
        bounds = [bound for bound, _ in self.minimum_effect]
        if bounds != sorted(set(bounds)) or bounds[-1] != math.inf or bounds[0] <= 0:
            raise wrong("minimum_effect", f"the bounds are {bounds}", "they must rise from above 0 to inf")
        if not all(0 < effect < 1 for _, effect in self.minimum_effect):
            raise wrong("minimum_effect", "an effect is not between 0 and 1", "0.02 means 2 %")
        return self

    def trusts(self, trust: Trust) -> bool:
        """Whether a result with this much trust may make a champion."""
        order = list(Trust)
        return order.index(trust) >= order.index(self.min_trust)

    def effect_at(self, time_us: float) -> float:
        """Return the least relative gain that counts for a kernel that takes `time_us`."""
        return next(effect for bound, effect in self.minimum_effect if time_us < bound or bound == math.inf)


class Board(Frozen):
    """[board]: the columns of board.md and the states a problem can be in."""

    columns: tuple[str, ...] = Field(min_length=1)
    states: tuple[str, ...] = Field(min_length=1)

    @field_validator("columns", "states")
    @classmethod
    def _are_distinct_words(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for word in words:
            if not re.fullmatch(r"[a-z][a-z0-9_]*", word) or words.count(word) > 1:
                raise wrong("", f"{word!r} is not allowed or appears twice", "use distinct lower-case words")
        return words


class Planner(Frozen):
    """[planner]: when a line of work is stalled and how workers are spread."""

    stall_verdicts: Count
    stall_minutes: Seconds
    settle_verdicts: Count
    """A faster tree is compared once its worker has handed in this many more without beating it, …"""
    settle_s: Float = Field(ge=0, allow_inf_nan=False)
    """… or after this long."""
    exploration: Float = Field(ge=0, allow_inf_nan=False)
    max_workers_per_problem: Count


class Protocol(Frozen):
    """All that COORDINATION.md obliges code to."""

    output: Output
    rules: Rules
    tests: Tests
    board: Board
    planner: Planner


def read_protocol(data: bytes, where: str = "COORDINATION.md") -> Protocol:
    """Parse the bytes of COORDINATION.md, which must be UTF-8."""
    return load_protocol(decode(data, where), where)


def load_protocol(text: str, where: str = "COORDINATION.md") -> Protocol:
    """Parse the blocks of COORDINATION.md; BadInput names the line of what is missing or wrong."""
    blocks = _blocks(text, where)
    raw = {name: content for name, (content, _, _) in blocks.items()}

    def locate(loc: Loc) -> str:
        _, source, first_line = blocks[str(loc[0])]
        return toml_fields(source, where, first_line)(loc)

    return parse(Protocol, raw, locate)


def frozen_text(text: str, where: str = "COORDINATION.md") -> bytes:
    """Return what an epoch freezes of COORDINATION.md: values only, as better prose is no new epoch."""
    blocks = _blocks(text, where)
    frozen = {name: blocks[name][0] for name in FROZEN_BLOCKS}
    return json.dumps(frozen, sort_keys=True, separators=(",", ":")).encode()


def _blocks(text: str, where: str) -> dict[str, tuple[object, str, int]]:
    """Return block name -> (content, its TOML text, line in the file of that text's first line)."""
    found: dict[str, tuple[object, str, int]] = {}
    for source, first_line in _fenced(text, where):
        content = read_toml(source, where, first_line)
        for name, value in content.items():
            place = f"{where}:{first_line}"
            if name not in BLOCKS:
                raise BadInput(f"unknown block [{name}]", where=place, remedy=suggest(name, BLOCKS))
            if name in found:
                raise BadInput(f"block [{name}] appears twice", where=place, remedy="merge the two")
            found[name] = (value, source, first_line)
    for name in BLOCKS:
        if name not in found:
            raise BadInput(f"no block [{name}]", where=where, remedy=f"add a fenced toml block with [{name}]")
    return found


def _fenced(text: str, where: str) -> list[tuple[str, int]]:
    """Return each ```toml block with the line number of its first line."""
    blocks: list[tuple[str, int]] = []
    lines = text.splitlines()
    start: int | None = None
    for number, line in enumerate(lines, start=1):
        if start is None and re.fullmatch(r"```\s*toml\s*", line):
            start = number + 1
        elif start is not None and line.rstrip() == "```":
            blocks.append(("\n".join(lines[start - 1 : number - 1]) + "\n", start))
            start = None
    if start is not None:
        raise BadInput("the toml block is not closed", where=f"{where}:{start - 1}", remedy="end it with ```")
    return blocks
