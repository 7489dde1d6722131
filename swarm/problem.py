"""A Problem: the folder that says what to compute, on which workloads, how closely and from which seeds.

Reads and checks the files; whether the problem is a sensible one (its reference runs, its inputs are not
trivial) is for `swarm problems lint`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from swarm import expressions
from swarm.definition import DEFINITION_FILE, REFERENCE_FILE, Definition, check_run, parse_definition
from swarm.device import Device
from swarm.errors import BadInput
from swarm.layout import check_name
from swarm.protocol import Tests
from swarm.schema import decode, suggest
from swarm.settings import Distribution, ProblemSettings, parse_settings, split
from swarm.tensorfile import tensor_bytes
from swarm.workload import SafetensorsInput, Workload, parse_workloads

SETTINGS_FILE = "problem.toml"
WORKLOAD_FILE = "workload.jsonl"
CPU_WORKLOAD_FILE = "workload.cpu.jsonl"
FAST_REFERENCE_FILE = "fast_reference.py"
BASELINE_FILE = "baseline.py"
PROBLEM_FILES = (
    DEFINITION_FILE,
    WORKLOAD_FILE,
    CPU_WORKLOAD_FILE,
    REFERENCE_FILE,
    SETTINGS_FILE,
    FAST_REFERENCE_FILE,
    BASELINE_FILE,
    "README.md",
)
NOT_THE_PROBLEM = ("COORDINATION.md", "NOTES.md", "solution/")
"""What else a problem branch holds."""
SEEDS = "seed/"
MAX_FILE_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """How closely outputs must match, after precedence."""

    atol: float
    rtol: float
    required_matched_ratio: float
    max_error_cap: float | None
    allow_negative_inf: bool


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem; every part of it has been checked against the others."""

    name: str
    definition: Definition
    workloads: tuple[Workload, ...]
    cpu_workloads: tuple[Workload, ...]
    settings: ProblemSettings
    fast_reference: str | None
    """Answers like the reference, only sooner, as lint has shown: what outputs are compared with."""
    baseline: str | None
    """The best library call."""
    seeds: dict[str, dict[str, bytes]]
    """Language -> the files of its solution/ folder."""
    files: dict[str, bytes]
    """What an epoch freezes: all files of the folder but the seeds."""

    @property
    def reference(self) -> str:
        return self.definition.reference

    def workloads_on(self, device: Device) -> tuple[Workload, ...]:
        """Return the workloads for a kind of device; BadInput if the problem has none."""
        workloads = self.cpu_workloads if device.workloads_file == CPU_WORKLOAD_FILE else self.workloads
        if not workloads:
            raise BadInput(
                f"problem {self.name!r} has no workloads for a {device.kind}",
                where=f"{self.name}/{device.workloads_file}",
                remedy="add the file",
            )
        return workloads

    def limits(self, workload: Workload, tests: Tests) -> Limits:
        """Return the tolerance of a workload: its own, then problem.toml's, then [tests]."""

        def first(field: str, default: float | bool | None) -> float | bool | None:
            for level in (workload.tolerance, self.settings.tolerance):
                value: float | bool | None = getattr(level, field, None)
                if value is not None:
                    return value
            return default

        cap = first("max_error_cap", None)
        return Limits(
            atol=float(first("max_atol", tests.atol) or 0),
            rtol=float(first("max_rtol", tests.rtol) or 0),
            required_matched_ratio=float(first("required_matched_ratio", tests.required_matched_ratio) or 0),
            max_error_cap=None if cap is None else float(cap),
            allow_negative_inf=bool(first("allow_negative_inf", False)),
        )

    def distribution(self, input_name: str, workload: Workload) -> Distribution | None:
        """Return how problem.toml wants an input drawn; None leaves it to the name rules."""
        text = self.settings.inputs.get(input_name)
        if text is None:
            return None
        where = f"{self.name}/{SETTINGS_FILE}: inputs.{input_name}"
        kind, arguments = split(text)
        names = self._names(workload)
        found = Distribution(
            kind, tuple(float(expressions.evaluate(a, names, where=where)) for a in arguments)
        )
        fault = found.fault(self.definition.inputs[input_name].dtype)
        if fault:
            raise BadInput(
                f"nothing can be drawn from {text!r} in workload {workload.uuid!r}: {fault}",
                where=where,
                remedy="correct its arguments",
            )
        return found

    def distributions(self, workload: Workload) -> dict[str, Distribution]:
        """Return how problem.toml wants inputs drawn, by name."""
        found = {name: self.distribution(name, workload) for name in self.settings.inputs}
        return {name: distribution for name, distribution in found.items() if distribution is not None}

    def sol_flops(self, workload: Workload) -> float | None:
        """Return the FLOPs that problem.toml gives for a workload, if it does."""
        return self._sol("flops", self.settings.sol.flops, workload)

    def sol_bytes(self, workload: Workload) -> float:
        """Return the bytes that must move: problem.toml's, else each input and output once."""
        given = self._sol("bytes", self.settings.sol.bytes, workload)
        if given is not None:
            return given
        axes = self.definition.resolve(workload)
        names = (*self.definition.inputs, *self.definition.outputs)
        return float(sum(self.definition.nbytes(name, axes) for name in names))

    def sol_terms(self, field: Literal["flops", "bytes"], workload: Workload) -> list[tuple[str, float]]:
        """Return the terms of problem.toml's expression, each with its value; none if there is none."""
        text = getattr(self.settings.sol, field)
        names, where = self._names(workload), f"{self.name}/{SETTINGS_FILE}: sol.{field}"
        found = [] if text is None else expressions.terms(text, where=where)
        return [(term, float(expressions.evaluate(term, names, where=where))) for term in found]

    def _sol(self, field: str, text: str | None, workload: Workload) -> float | None:
        if text is None:
            return None
        where = f"{self.name}/{SETTINGS_FILE}: sol.{field}"
        value = float(expressions.evaluate(text, self._names(workload), where=where))
        if value < 0:
            raise BadInput(f"expression {text!r} is {value}", where=where, remedy="it must not be negative")
        return value

    def _names(self, workload: Workload) -> dict[str, int | float]:
        return {**workload.scalars, **self.definition.resolve(workload)}


def load_problem(folder: Path, *, warnings: list[str] | None = None) -> Problem:
    """Read and check problems/<name>/. `warnings` is for third-party data: unknown fields are noted there."""
    if not folder.is_dir():
        near = [item.name for item in folder.parent.glob("*/")] if folder.parent.is_dir() else []
        raise no_problem(folder.name, folder.parent, near)
    files: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or "__pycache__" in path.parts:
            continue
        if path.stat().st_size > MAX_FILE_BYTES and not name.endswith(".safetensors"):
            raise BadInput(
                f"{path.stat().st_size} bytes",
                where=f"{folder.name}/{name}",
                remedy="a problem's files are small",
            )
        files[name] = path.read_bytes()
    return problem_from_files(files, folder.name, warnings=warnings)


def no_problem(name: str, folder: Path, there: Iterable[str]) -> BadInput:
    """Return the error for a name, or a pattern, that is none of the problems in `folder`."""
    return BadInput(
        f"no problem {name!r}",
        where=str(folder),
        remedy=suggest(name, there, otherwise="`swarm problems list` shows which there are"),
    )


def problem_from_files(
    files: Mapping[str, bytes], name: str, *, warnings: list[str] | None = None
) -> Problem:
    """Check the files of a problem, by path in its folder; a branch's other files may be among them."""
    check_name("problem", name)
    own = {path: data for path, data in files.items() if not path.startswith(NOT_THE_PROBLEM)}
    where = f"{name}/"
    for required in (DEFINITION_FILE, WORKLOAD_FILE):
        if required not in own:
            raise BadInput(f"no {required}", where=where, remedy="add it")
    _check_files(own, where, warnings)
    definition = parse_definition(
        own[DEFINITION_FILE], where + DEFINITION_FILE, reference=own.get(REFERENCE_FILE), warnings=warnings
    )

    def workloads(file: str) -> tuple[Workload, ...]:
        return parse_workloads(own[file], where + file, definition, warnings=warnings) if file in own else ()

    problem = Problem(
        name=name,
        definition=definition,
        workloads=workloads(WORKLOAD_FILE),
        cpu_workloads=workloads(CPU_WORKLOAD_FILE),
        settings=parse_settings(own.get(SETTINGS_FILE, b""), where + SETTINGS_FILE, definition),
        fast_reference=_fast_reference(own, where, definition),
        baseline=_text(own, BASELINE_FILE, where),
        seeds=_seeds(own, where),
        files={path: data for path, data in own.items() if not path.startswith(SEEDS)},
    )
    for workload in (*problem.workloads, *problem.cpu_workloads):
        problem.sol_flops(workload)
        problem.sol_bytes(workload)
        problem.distributions(workload)
        _check_tensors(problem, workload)
    return problem


def _check_tensors(problem: Problem, workload: Workload) -> None:
    """Raise BadInput unless the tensors that a workload takes from files are there."""
    axes = problem.definition.resolve(workload)
    for name, item in workload.inputs.items():
        if isinstance(item, SafetensorsInput):
            dtype, shape = problem.definition.inputs[name].dtype, problem.definition.shape(name, axes)
            try:
                tensor_bytes(problem.files, item.path, item.tensor_key, dtype, shape or ())
            except BadInput as error:
                place = f"{error.where}: " if error.where else ""
                raise BadInput(
                    f"{place}{error.what}",
                    where=f"{problem.name}: workload {workload.uuid}: inputs.{name}",
                    remedy=error.remedy,
                ) from None


def _check_files(files: Mapping[str, bytes], where: str, warnings: list[str] | None) -> None:
    for path in files:
        if path in PROBLEM_FILES or path.startswith(SEEDS) or path.endswith(".safetensors"):
            continue
        error = BadInput("unknown file", where=where + path, remedy=suggest(path, PROBLEM_FILES))
        if warnings is None:
            raise error
        warnings.append(str(error))


def _seeds(files: Mapping[str, bytes], where: str) -> dict[str, dict[str, bytes]]:
    seeds: dict[str, dict[str, bytes]] = {}
    for path, data in files.items():
        if path.startswith(SEEDS):
            language, _, rest = path.removeprefix(SEEDS).partition("/")
            if not rest:
                raise BadInput(
                    "a seed is a folder", where=where + path, remedy=f"move it to {SEEDS}<language>/"
                )
            seeds.setdefault(language, {})[rest] = data
    return seeds


def _fast_reference(files: Mapping[str, bytes], where: str, definition: Definition) -> str | None:
    text = _text(files, FAST_REFERENCE_FILE, where)
    if text is not None:
        check_run(text, definition.inputs, where + FAST_REFERENCE_FILE)
    return text


def _text(files: Mapping[str, bytes], name: str, where: str) -> str | None:
    return decode(files[name], where + name) if name in files else None
