"""Would an answer that skips the work pass? Tries such answers before anyone is asked to optimise a problem.

Five calls of a workload are drawn as a judge draws them, with every kind of input among them. The reference
computes what is right once for each, and all but the answers about inputs are made from that. An answer that
fails once is not tried again: a judge would have rejected it. What passed every time is a finding, with the
tolerance that would have told it from an honest answer.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import torch

from swarm.definition import REFERENCE_FILE, DType
from swarm.errors import BadInput, Refused
from swarm.judge import check, elements
from swarm.judge.answers import COARSER, Answer, Output, Trial, Weakness, answers, coarser, mean, need
from swarm.judge.arena import free_bytes
from swarm.judge.inputs import ROUND, Spread
from swarm.judge.reference import FAST, InvalidReference, References
from swarm.judge.sitting import private_bytes
from swarm.judge.slots import Shape
from swarm.judge.workbench import Workbench
from swarm.problem import CPU_WORKLOAD_FILE, FAST_REFERENCE_FILE, WORKLOAD_FILE, Limits, Problem
from swarm.protocol import Tests
from swarm.workload import Workload

LEAST_SPREAD = 20.0
"""Outputs must vary by so many tolerances, or a rough guess comes close to them."""
MARGIN = 1.5
"""How far a tolerance that separates is from the closest wrong answer, and from an honest one at least."""
PEAK = 16
"""Times the size of its inputs and outputs that trying a workload may take in memory; 5 to 7 with 16-bit
inputs, 14 with int8, which is drawn as int64."""
FAST_SHARE = 1 / 3
"""Of the tolerance, and of the elements that need not match: how far a fast reference may be off."""
INDICES = (DType.INT16, DType.INT32, DType.INT64)
"""Integers this wide are taken for indices, which cannot be made up."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An answer that passed in every call, or a doubt about the reference itself, with the numbers."""

    weakness: Weakness
    workload: str
    about: str
    """The input or output that it is about, or what the reference said."""
    matched_ratio: float = 1.0
    """Of the call in which it matched least; for NO_SPREAD the spread in tolerances."""
    need: float = 0.0
    """It fails below this share of the tolerance."""

    @property
    def is_broken(self) -> bool:
        """Whether nothing can be judged by the problem at all, let alone weakly."""
        return self.weakness in (Weakness.BAD_REFERENCE, Weakness.OTHER_ANSWER)

    @property
    def name(self) -> str:
        return f"{self.weakness} ({self.about})"

    def __str__(self) -> str:
        place = f"workload {self.workload}"
        if self.weakness is Weakness.OTHER_ANSWER:
            off = f"off by {self.need:.3g} of the tolerance, {FAST_SHARE:.2g} are allowed"
            return f"{place}: {FAST_REFERENCE_FILE} differs from {REFERENCE_FILE} in {self.about}: {off}"
        if self.is_broken:
            return f"{place}: the reference is unusable: {self.about}"
        if self.weakness is Weakness.NO_SPREAD:
            varies = f"{self.about} varies by {self.matched_ratio:.3g} tolerances only"
            return f"{place}: {varies}, {LEAST_SPREAD:g} are needed"
        return f"{place}: {self.name} passes; {100 * self.matched_ratio:.4g} % of it match"


@dataclass(frozen=True, slots=True)
class Separation:
    """Which tolerance would reject what was found weak about a workload; in multiples of the one it has."""

    workload: str
    limits: Limits
    honest: float
    """What an honest answer, in the other precision, is off by."""
    wrong: float
    """What the closest wrong answer is off by, without those that are as good as honest ones."""
    hopeless: tuple[str, ...]
    """Those: no tolerance rejects them."""
    unknown: str = ""
    """Why it is not known what an honest answer is off by."""

    @property
    def scale(self) -> float | None:
        """Return what to multiply the tolerance by, None if that mends nothing."""
        return self.wrong / MARGIN if math.isfinite(self.wrong) else None

    def __str__(self) -> str:
        said = []
        if self.scale is not None:
            atol, rtol = self.scale * self.limits.atol, self.scale * self.limits.rtol
            said.append(f"max_atol = {atol:.1e} and max_rtol = {rtol:.1e} would separate")
        if self.hopeless:
            off = f"an honest answer is off by {self.honest:.2g} of it"
            said.append(f"no tolerance rejects {', '.join(self.hopeless)}: {off}")
        if self.unknown:
            said.append(f"what an honest answer is off by is not known: {self.unknown}")
        return f"workload {self.workload}: {'; '.join(said)}"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a problem's wrong answers."""

    findings: list[Finding]
    """Those that passed; none for a sound problem."""
    separations: list[Separation]
    """What would mend each workload that has findings."""
    rejected: Counter[Weakness]
    """How many of each kind failed."""


def lint(problem: Problem, tests: Tests, references: References, seed: str = "lint") -> Result:
    """Try every wrong answer to a problem; BadInput if its workloads are such that there is none."""
    result = Result([], [], Counter())
    try:
        for workload in linted_workloads(problem):
            trying = _Trying(problem, workload, problem.limits(workload, tests), references, seed)
            found = trying.findings()
            result.findings.extend(found)
            result.rejected.update(trying.rejected)
            if found and not any(finding.is_broken for finding in found):
                result.separations.append(trying.separation(found))
    finally:  # a kept one holds as much memory as its largest workload
        references.release(_key(problem, is_wider=True))
        references.release(_key(problem, is_wider=False))
    if not result.findings and not result.rejected:
        raise BadInput("nothing to try", where=problem.name, remedy="add a workload with outputs")
    result.findings.sort(key=lambda finding: (finding.weakness, finding.workload))
    return result


def stay_on(cores: Collection[int]) -> None:
    """Move to the cores of the device: torch counts those of the machine, and its threads spin for a turn."""
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(len(cores))


def difference(got: torch.Tensor, right: torch.Tensor, limits: Limits) -> float:
    """Return by how many tolerances a fast reference is off the plain one; FAST_SHARE are allowed."""
    missed = (1 - limits.required_matched_ratio) * FAST_SHARE
    share = need(got, right, 1 - missed, limits)
    if limits.max_error_cap is not None:
        share = max(share, float((got - right).abs().max()) / limits.max_error_cap)
    return share


def linted_workloads(problem: Problem) -> tuple[Workload, ...]:
    """Return the workloads for a CPU; without any, the smallest with work, as lint works on a CPU."""

    def rank(workload: Workload) -> tuple[bool, float]:
        axes = problem.definition.resolve(workload)
        is_empty = not any(problem.definition.nbytes(name, axes) for name in problem.definition.outputs)
        return is_empty, problem.sol_bytes(workload)

    return problem.cpu_workloads or (min(problem.workloads, key=rank),)


def _key(problem: Problem, is_wider: bool) -> str:
    return hashlib.sha256(repr((sorted(problem.files.items()), is_wider)).encode()).hexdigest()


class _Trying:
    """One workload, and which wrong answers to it have passed so far."""

    def __init__(
        self, problem: Problem, workload: Workload, limits: Limits, references: References, seed: str
    ) -> None:
        self._problem = problem
        self._workload = workload
        self._limits = limits
        self._references = references
        self._seed = seed
        self._is_wider = problem.settings.reference_precision == "higher"
        self._passed: dict[tuple[Weakness, str], Trial] = {}
        self._failed: set[tuple[Weakness, str]] = set()

    def findings(self) -> list[Finding]:
        """Try everything; what passed in every call is a finding."""
        wanted, free = PEAK * private_bytes(self._problem, self._workload), free_bytes()
        if wanted > free:
            is_for_cpu = self._workload in self._problem.cpu_workloads
            file = CPU_WORKLOAD_FILE if is_for_cpu else WORKLOAD_FILE
            sizes = ", ".join(f"{name} = {size}" for name, size in self._workload.axes.items())
            raise Refused(
                f"not tried: with axes {sizes} that may take {wanted >> 20} MiB, and {free >> 20} MiB of "
                "memory are free",
                where=f"{self._problem.name}/{file}: workload {self._workload.uuid}",
                remedy="make it smaller" if is_for_cpu else f"add {CPU_WORKLOAD_FILE} with smaller ones",
            )
        before: list[torch.Tensor] | None = None
        try:
            for bench, expected in self._calls(self._is_wider):
                outputs = self._outputs(bench, expected)
                self._try_fast(outputs, bench)
                self._try_outputs(outputs, bench, before)
                self._try_inputs(outputs, bench)
                before = expected
        except InvalidReference as error:
            self._references.drop(_key(self._problem, self._is_wider), error)
            return [Finding(Weakness.BAD_REFERENCE, self._workload.uuid, str(error))]
        return [
            Finding(weakness, self._workload.uuid, about, trial.matched_ratio, trial.need)
            for (weakness, about), trial in self._passed.items()
        ]

    @property
    def rejected(self) -> Counter[Weakness]:
        """How many answers of each kind have failed."""
        return Counter(weakness for weakness, _ in self._failed)

    def separation(self, found: list[Finding]) -> Separation:
        """Say where an honest answer lies: the reference in its other precision, rounded as outputs are."""
        honest, unknown = 0.0, ""
        ratio, is_other = self._limits.required_matched_ratio, not self._is_wider
        try:
            calls = zip(self._calls(self._is_wider), self._calls(is_other), strict=True)
            for (bench, right), (_, got) in calls:
                for shape, wanted, values in zip(bench.outputs, right, got, strict=True):
                    for answer in (wanted, values) if wanted.numel() else ():
                        kept = elements.comparable(elements.stored(answer, shape.dtype), shape.dtype)
                        honest = max(honest, need(kept, wanted, ratio, self._limits))
        except InvalidReference as error:  # one that names its dtypes need not run in another precision
            self._references.drop(_key(self._problem, is_other), error)
            unknown = str(error)
        least = MARGIN**2 * honest
        return Separation(
            self._workload.uuid,
            self._limits,
            honest,
            min((finding.need for finding in found if finding.need > least), default=math.inf),
            tuple(finding.name for finding in found if finding.need <= least),
            unknown,
        )

    def _calls(self, is_wider: bool) -> Iterator[tuple[Workbench, list[torch.Tensor]]]:
        """Yield each call's inputs, and what the reference makes of them in one precision."""
        problem = self._problem
        key = _key(problem, is_wider)
        reference = self._references.get(
            key, problem.name, problem.definition, is_wider, problem.fast_reference
        )
        with Workbench(problem, self._workload, reference, self._seed) as bench:
            for _ in ROUND:
                bench.draw()
                yield bench, bench.expect()

    def _outputs(self, bench: Workbench, expected: list[torch.Tensor]) -> list[Output]:
        dice = torch.Generator().manual_seed(0)
        outputs = []
        for shape, right in zip(bench.outputs, expected, strict=True):
            if strange := check.invalid_reference(shape.name, right, self._limits):
                raise InvalidReference(f"{strange} for {bench.spread} inputs")
            outputs.append(Output(shape, right, self._limits, dice))
        return outputs

    def _try_fast(self, outputs: list[Output], bench: Workbench) -> None:
        """See whether what a judge compares with is what the plain reference says."""
        if self._problem.fast_reference is None:
            return
        for output, got in zip(outputs, bench.expect(FAST), strict=True):
            if not got.numel():
                continue
            share = difference(got, output.right, self._limits)
            key = (Weakness.OTHER_ANSWER, output.shape.name)
            if share > FAST_SHARE and (key not in self._passed or share > self._passed[key].need):
                self._passed[key] = Trial(0.0, share)

    def _try_outputs(
        self, outputs: list[Output], bench: Workbench, before: list[torch.Tensor] | None
    ) -> None:
        """Try answers for one output that need no reference; all other outputs count as right."""
        given = list(zip(bench.inputs, bench.tensors(), strict=True))
        for index, output in enumerate(outputs):
            if not output.right.numel():
                continue
            if output.shape.dtype.is_float and output.right.numel() > 1 and bench.spread is Spread.PLAIN:
                spread = output.spread
                if spread < LEAST_SPREAD:
                    key = (Weakness.NO_SPREAD, output.shape.name)
                    self._passed[key] = Trial(spread, spread / LEAST_SPREAD)
            for weakness, about, answer in answers(output, before[index] if before else None, given):
                if self._is_open(weakness, about):
                    self._hold(weakness, about, [(output, answer)])

    def _try_inputs(self, outputs: list[Output], bench: Workbench) -> None:
        """Try the right answers to other inputs."""
        if not any(output.right.numel() for output in outputs):
            return
        for values, shape in zip(bench.tensors(), bench.inputs, strict=True):
            if shape.dtype in INDICES or not shape.count:
                continue
            row = shape.stored[-1] if shape.stored else 1
            original = None
            for weakness, first in ((Weakness.HALF_READ, row // 2), (Weakness.UNREAD, 0)):
                if row > 1 or not first:
                    if self._is_open(weakness, shape.name):
                        original = values.clone() if original is None else original
                        values.view(-1, row)[:, first:] = _unread(shape, original)
                        self._hold(weakness, shape.name, _pairs(outputs, bench.expect()))
                    if not self._is_open(weakness, shape.name):
                        break  # who must read half of it must read it
            if original is not None:
                values.copy_(original)
        is_coarse = any(shape.dtype in COARSER or shape.dtype is DType.INT8 for shape in bench.inputs)
        if is_coarse and self._is_open(Weakness.LOWER_PRECISION, "all"):
            kept = [values.clone() for values in bench.tensors()]
            for values, shape in zip(bench.tensors(), bench.inputs, strict=True):
                values.copy_(coarser(values, shape.dtype))
            rough = [
                coarser(got, output.shape.dtype) for output, got in zip(outputs, bench.expect(), strict=True)
            ]
            self._hold(Weakness.LOWER_PRECISION, "all", _pairs(outputs, rough))
            for values, original in zip(bench.tensors(), kept, strict=True):
                values.copy_(original)

    def _is_open(self, weakness: Weakness, about: str) -> bool:
        return (weakness, about) not in self._failed

    def _hold(self, weakness: Weakness, about: str, pairs: list[tuple[Output, Answer]]) -> None:
        """Hold an answer, which has a part for each output, against what is right."""
        key = (weakness, about)
        trials = [] if any(output.fails(part) for output, part in pairs) else [o.trial(p) for o, p in pairs]
        passed = [trial for trial in trials if trial is not None]
        if not trials or len(passed) < len(trials):
            self._failed.add(key)
            self._passed.pop(key, None)
            return
        passed += [self._passed[key]] if key in self._passed else []
        self._passed[key] = Trial(min(t.matched_ratio for t in passed), max(t.need for t in passed))


def _unread(shape: Shape, values: torch.Tensor) -> float:
    """Return what stands for values that are not read: their mean, or another where there is but one."""
    if shape.dtype.is_packed:
        return 0
    return 1 - float(values) if shape.count == 1 else mean(values)


def _pairs(outputs: list[Output], got: list[torch.Tensor]) -> list[tuple[Output, Answer]]:
    """Pair whole answers with the outputs that are not empty."""
    return [
        (output, values.__getitem__)
        for output, values in zip(outputs, got, strict=True)
        if output.right.numel()
    ]
