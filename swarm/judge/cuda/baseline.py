"""T_b on a GPU: torch's ways to compute a problem, each run and timed like any candidate.

A contender is Python source whose function returns its outputs. It has a runner of its own, and its time is
what it does on the GPU: what torch costs on the CPU counts for neither side.
"""

from __future__ import annotations

import random
import re
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from swarm.baseline import NOT_IN_TIME, Baseline, Contender, Optimised
from swarm.contents import files_hash
from swarm.device import Device
from swarm.errors import Refused
from swarm.foreign import one_line
from swarm.judge import timing
from swarm.judge.build import Built, Frozen, build
from swarm.judge.cuda.desk import CudaDesk
from swarm.judge.reference import InvalidReference
from swarm.languages.protocol import Artifact, Failure, Kind
from swarm.locks import device_lock_path, held
from swarm.problem import Problem
from swarm.protocol import Protocol
from swarm.solution import Language, Manifest
from swarm.verdict import JUDGE_VERSION

LOCK_S = 600.0
WORKLOAD_S, MAX_CALLS = 0.3, 50
"""Of one contender on one workload; a stored T_b is worth less than a comparison."""
REASON_CHARS = 300
PRODUCTS = re.compile(
    r"@|\b(matmul|mm|bmm|addmm|baddbmm|einsum|linear|conv\w*|scaled_dot_product_attention)\b"
)
"""Where torch may choose between kernels: only there is its long search worth its minutes."""
COMPILED = "import torch\nfrom reference import run as _run\n\nrun = torch.compile(_run)\n"
SEARCHED = (
    "import torch\nfrom reference import run as _run\n\n"
    'run = torch.compile(_run, mode="max-autotune-no-cudagraphs")\n'
)


def measure(
    problems: Sequence[Problem],
    protocol: Protocol,
    device: Device,
    cache: Path,
    budget_s: float,
    begun: Mapping[str, Baseline],
    optimised: Mapping[str, Optimised],
) -> Iterator[Baseline]:
    """Yield a baseline per problem; about `budget_s` for all together, shared out evenly."""
    deadline = time.monotonic() + budget_s
    with CudaDesk(device, cache) as desk:
        for done, problem in enumerate(problems):
            share_s = (deadline - time.monotonic()) / (len(problems) - done)
            bench = _Bench(desk, problem, protocol, time.monotonic() + max(share_s, 1.0))
            yield bench.baseline(begun.get(problem.name), optimised.get(problem.name))


def contenders(problem: Problem) -> dict[str, tuple[str, dict[str, str]]]:
    """Return name -> (entry file, sources) of what is to be timed, cheapest first."""
    reference = {"reference.py": problem.reference}
    found = {"eager": ("reference.py", reference)}
    if problem.baseline is not None:
        found["baseline.py"] = ("baseline.py", {"baseline.py": problem.baseline})
    found["compile"] = ("compiled.py", reference | {"compiled.py": COMPILED})
    if PRODUCTS.search(problem.reference):
        found["compile max-autotune"] = ("compiled.py", reference | {"compiled.py": SEARCHED})
    return found


class _Bench:
    """One problem's contenders."""

    def __init__(self, desk: CudaDesk, problem: Problem, protocol: Protocol, deadline: float) -> None:
        tests = protocol.tests
        limits = {"budget_s": WORKLOAD_S, "max_calls": max(MAX_CALLS, tests.min_calls)}
        self._rules = Frozen(problem, protocol.model_copy(update={"tests": tests.model_copy(update=limits)}))
        self._desk = desk
        self._problem = problem
        self._deadline = deadline
        self._seed = secrets.token_hex(16)

    def baseline(self, begun: Baseline | None, champion: Optimised | None) -> Baseline:
        """Time what `begun`, of an earlier sitting, has no times of, and a run's champion."""
        device, problem = self._desk.device, self._problem
        with (
            tempfile.TemporaryDirectory() as folder,
            held(
                device_lock_path(device.uuid),
                timeout_s=LOCK_S,
                purpose=f"measure the baseline of {problem.name}",
            ),
        ):
            found = [
                self._contender(self._kept(name, begun), entry, sources, Path(folder) / str(number))
                for number, (name, (entry, sources)) in enumerate(contenders(problem).items())
            ]
            known = () if begun is None else begun.optimised
            found += [one for one in known if champion is None or one.name != champion.name]
            if champion is not None:
                found.append(self._optimised(self._kept(champion.name, begun), champion.files))
        return Baseline(
            problem.name, device.model, files_hash(problem.files), JUDGE_VERSION, time.time(), tuple(found)
        )

    def _kept(self, name: str, begun: Baseline | None) -> Contender:
        now = self._desk.versions()
        return Contender(name, {}, now, NOT_IN_TIME) if begun is None else begun.kept(name, now)

    def _contender(self, before: Contender, entry: str, sources: dict[str, str], folder: Path) -> Contender:
        if before.is_done or time.monotonic() > self._deadline:
            return before
        for file, text in sources.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        artifact = Artifact(Kind.PYTHON, folder, f"{entry}::run", returns_outputs=True, converts_outputs=True)
        manifest = Manifest(language=Language.PYTORCH, sources=(entry,), entry=f"{entry}::run")
        try:
            return self._time(before, Built(manifest, artifact))
        except (InvalidReference, Refused) as error:
            return self._missing(before.name, str(error))

    def _optimised(self, before: Contender, files: Mapping[str, bytes]) -> Contender:
        """Time a run's champion as a judge times any tree."""
        if before.is_done or time.monotonic() > self._deadline:
            return before
        built = build(files, self._rules, self._desk.device, self._desk.cache)
        if isinstance(built, Failure):
            return self._missing(before.name, f"{built.status}: {built.reason}")
        try:
            return self._time(before, built, is_believed=False)
        except (InvalidReference, Refused) as error:
            return self._missing(before.name, str(error))

    def _time(self, before: Contender, built: Built, *, is_believed: bool = True) -> Contender:
        """Time what has no time yet; an agent's code is held against the judge's clock, too."""
        name, times_us = before.name, dict(before.times_us)
        workloads = self._problem.workloads_on(self._desk.device)
        rng = random.Random(self._seed)
        left_s = self._deadline - time.monotonic()
        with (
            self._desk.table(self._problem.name, self._rules, workloads, self._seed) as table,
            table.runner(built, timeout_s=max(left_s, 1.0)) as runner,
        ):
            for workload in (one for one in workloads if one.uuid not in times_us):
                if time.monotonic() > self._deadline:
                    return replace(before, times_us=times_us)
                control = None if is_believed else table.control(built)
                timed = timing.measure(table.sitting(workload), runner, control, rng)
                if isinstance(timed, Failure):
                    if time.monotonic() > self._deadline:
                        return replace(before, times_us=times_us)
                    return self._missing(name, f"{timed.status}: {timed.reason}")
                times_us[workload.uuid] = timed.time_us
        return Contender(name, times_us, self._desk.versions())

    def _missing(self, name: str, reason: str) -> Contender:
        return Contender(name, {}, self._desk.versions(), one_line(reason, REASON_CHARS))
