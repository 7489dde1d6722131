"""What an extraction found in a model, as data: all of it is a claim of the process that ran its code."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from swarm.schema import Flag, Float, Frozen, Int, json_fields, parse, read_json, wrong

Direction = Literal["forward", "backward"]


class FoundTensor(Frozen):
    """One input or output; how an input is drawn is a distribution of problem.toml."""

    name: str
    dtype: str
    drawn: str


class Case(Frozen):
    """One size in which a subgraph occurs in the model."""

    count: Int = Field(ge=1)
    time_us: Float = Field(ge=0, allow_inf_nan=False)
    places: tuple[str, ...]
    """The modules it is in, some of them if they are many."""
    shapes: tuple[tuple[Int, ...], ...]
    """Of the inputs, then of the outputs."""
    atol: Float = Field(ge=0, allow_inf_nan=False)
    rtol: Float = Field(ge=0, allow_inf_nan=False)
    flops: Int = Field(ge=0)

    @property
    def total_us(self) -> float:
        return self.time_us * self.count


class Found(Frozen):
    """A subgraph that takes time in the model."""

    direction: Direction
    label: str
    op_class: str
    module: str
    """The class of the module that it begins in."""
    path: str
    inputs: tuple[FoundTensor, ...]
    outputs: tuple[FoundTensor, ...] = Field(min_length=1)
    cases: tuple[Case, ...] = Field(min_length=1)
    reference: str
    is_wider: Flag
    is_irregular: Flag
    ratio: Float = Field(gt=0, le=1)
    is_counted: Flag
    """torch's counter finds the FLOPs in the reference; otherwise problem.toml says them."""
    bytes: Int | None = Field(ge=0)
    """That must move, where not all of each input is read."""

    @model_validator(mode="after")
    def _shapes_fit(self) -> Found:
        ranks = [len(shape) for shape in self.cases[0].shapes]
        if len(ranks) != len(self.inputs) + len(self.outputs):
            raise wrong("cases", "there is not one shape for each input and output", "trace the model again")
        for case in self.cases:
            if [len(shape) for shape in case.shapes] != ranks:
                raise wrong("cases", "their shapes differ in rank", "trace the model again")
        return self

    @property
    def total_us(self) -> float:
        return sum(case.total_us for case in self.cases)


class LeftOut(Frozen):
    """Something that no problem is made of, and why."""

    where: str
    what: str


class Findings(Frozen):
    """A model's hottest subgraphs, hottest first."""

    found: tuple[Found, ...]
    regions_us: Float = Field(ge=0, allow_inf_nan=False)
    """What all its subgraphs that can be problems take together."""
    model_us: Float = Field(ge=0, allow_inf_nan=False)
    """What the model takes as it is."""
    left: tuple[LeftOut, ...]


def parse_findings(data: bytes) -> Findings:
    where = "the extraction's process"
    return parse(Findings, read_json(data, where), json_fields(where))
