"""Has Nsight Compute look at one call of a candidate: why a kernel takes as long as it does.

The call is made in a process of its own with inputs as the judge draws them; nothing of it counts for a
verdict. The GPU's clocks are left as they are. The process is in a box; many drivers show counters to the
machine's administrator only, which nobody is in there, so a plan, whose code on the host is all ours, is
tried outside of it after that.
"""

from __future__ import annotations

import csv
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swarm import sandbox
from swarm.device import Device, cpu_device
from swarm.errors import Refused
from swarm.judge.cuda import driver, nodes
from swarm.judge.cuda.artifacts import content, layout_of
from swarm.judge.cuda.profile_main import CONTENT, LOAD, SPEC
from swarm.judge.cuda.spares import LIMITS, Host
from swarm.judge.cuda.wire import Layout, pack_load
from swarm.judge.reference import References
from swarm.judge.workbench import Workbench
from swarm.languages import cuda_toolkit
from swarm.languages.protocol import Artifact, Kind
from swarm.locks import device_lock_path, held
from swarm.problem import Problem
from swarm.workload import Workload

MAIN = Path(__file__).with_name("profile_main.py")
PACKAGE = Path(__file__).resolve().parents[2]
SECTIONS = (
    "SpeedOfLight", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "SchedulerStats", "WarpStateStats",
    "LaunchStats", "Occupancy",
)  # fmt: skip
OPTIONS = (
    "--csv", "--page", "details", "--print-units", "base", "--profile-from-start", "off",
    "--target-processes", "all", "--clock-control", "none", "--launch-count", "64",
)  # fmt: skip
"""The clocks are not ours to change, and ncu would."""
TIMEOUT_S = 300.0
LOCK_S = 600.0
REPORT = "report.csv"
TIMED_OUT = f"did not end within {TIMEOUT_S:.0f} s"
NOT_ALLOWED = "ERR_NVGPUCTRPERM"
PREFIX = re.compile(r"^==\w+== ?")


@dataclass(frozen=True, slots=True)
class Metric:
    section: str
    name: str
    unit: str
    value: str


@dataclass(frozen=True, slots=True)
class Profiled:
    """One kernel of the call, as Nsight Compute saw it."""

    kernel: str
    grid: str
    block: str
    metrics: tuple[Metric, ...]
    advice: tuple[str, ...]
    """What its rules make of them, a paragraph each."""


def check_profiler() -> Path:
    """Return Nsight Compute's program; Refused if it is not here."""
    found = cuda_toolkit.tool("ncu")
    if found is None:
        raise Refused(
            "no ncu on this machine", where="--profile", remedy="install Nsight Compute, which CUDA brings"
        )
    return found


def profile(artifact: Artifact, problem: Problem, workload: Workload, device: Device) -> list[Profiled]:
    """Return the kernels of one call, in their order; Refused, with the reason, where that does not work."""
    ncu = check_profiler()
    with (
        tempfile.TemporaryDirectory(prefix="swarm-profile-") as temp,
        held(device_lock_path(device.uuid), timeout_s=LOCK_S, purpose="profile a kernel"),
    ):
        folder, out = Path(temp), Path(temp) / "out"
        folder.chmod(0o755)
        out.mkdir()
        _lay_out(folder, artifact, problem, workload)
        refusals = []
        report = out / REPORT
        for watch in (_boxed, _plain) if artifact.kind is Kind.PLAN else (_boxed,):
            report.unlink(missing_ok=True)
            end, said = watch(_command(ncu, folder, out), folder, out, Host.of(artifact.kind), device)
            text = report.read_text(errors="replace") if report.is_file() else ""
            if found := read(text.splitlines()):
                return found
            refusals.append((_reason(end, text, said), _remedy(text + said)))
    reason, remedy = refusals[-1]
    raise Refused(reason, where="--profile", remedy=remedy)


def read(lines: Iterable[str]) -> list[Profiled]:
    """Read what `ncu --csv --page details` prints."""
    table = csv.DictReader(line for line in lines if line.strip() and not PREFIX.match(line))
    rows: dict[str, list[Mapping[str, str]]] = {}
    for row in table:
        rows.setdefault(row.get("ID") or "", []).append(row)
    return [_profiled(group) for key, group in rows.items() if key.isdecimal()]


def _profiled(rows: Sequence[Mapping[str, str]]) -> Profiled:
    first = rows[0]
    metrics = tuple(
        Metric(row["Section Name"], row["Metric Name"], row["Metric Unit"], row["Metric Value"])
        for row in rows
        if row.get("Metric Name")
    )
    advice = tuple(row["Rule Description"] for row in rows if row.get("Rule Description"))
    return Profiled(
        first["Kernel Name"], first.get("Grid Size", ""), first.get("Block Size", ""), metrics, advice
    )


def _lay_out(folder: Path, artifact: Artifact, problem: Problem, workload: Workload) -> None:
    """Write the candidate and one call's arguments."""
    layout = layout_of(problem)
    (folder / LOAD).write_bytes(pack_load(_head(artifact, layout), content(artifact.path)))
    with References(cpu_device()) as references:
        reference = references.get(problem.name, problem.name, problem.definition, is_wider=False)
        with Workbench(problem, workload, reference, secrets.token_hex(8)) as bench:
            bench.draw()
            with (folder / CONTENT).open("wb") as file:
                file.write(bench.memory)
            arena_bytes = len(bench.memory)
            axes = problem.definition.resolve(workload)
            arguments, axes = layout.unpack(layout.pack(bench.arguments, axes))  # as a runner gets them
    host = Host.of(artifact.kind)
    spec = {
        "site": [*map(str, nodes.site_folders()), str(PACKAGE.parent)],
        "needs_torch": host is Host.TORCH,
        "legacy_stream": host is not Host.BARE,
        "arena_bytes": arena_bytes,
        "arguments": arguments,
        "axes": axes,
    }
    (folder / SPEC).write_text(json.dumps(spec))


def _head(artifact: Artifact, layout: Layout) -> dict[str, Any]:
    """Say what the candidate is, as a runner is told."""
    return {
        "kind": artifact.kind,
        "entry": artifact.entry,
        "is_empty": False,
        "returns_outputs": artifact.returns_outputs,
        "converts_outputs": artifact.converts_outputs,
        "layout": layout.to_json(),
    }


def _command(ncu: Path, folder: Path, out: Path) -> list[str]:
    sections = [word for name in SECTIONS for word in ("--section", name)]
    python = [os.path.realpath(sys.executable), "-I", "-S", str(MAIN), str(folder)]
    return [str(ncu), *OPTIONS, *sections, "--force-overwrite", "--log-file", str(out / REPORT), *python]


def _boxed(command: Sequence[str], folder: Path, out: Path, host: Host, device: Device) -> tuple[str, str]:
    """Run it in a box; return how it ended and what it printed."""
    driver.bindings()  # so that the driver's libraries are known
    libraries = nodes.library_folders()
    tools = [path for path in (Path(command[0]).resolve().parent, Path("/opt/nvidia")) if path.exists()]
    if not sandbox.level().is_at_least(sandbox.Level.NAMESPACES):
        return "is not started", "no namespaces for its box"  # it talks to what it watches by TCP
    process = sandbox.spawn(
        command,
        limits=LIMITS[host],
        cores=device.cores,
        env={**_environment(device), "USER": "swarm", "LD_LIBRARY_PATH": ":".join(map(str, libraries))},
        readable=[folder, PACKAGE, *nodes.site_folders(), *libraries, *tools],
        writable=[out],
        devices=nodes.nodes(device.uuid),
        loopback=True,
    )
    with process:
        end = process.wait(TIMEOUT_S)
        return TIMED_OUT if end is None else str(end), process.log


def _plain(command: Sequence[str], folder: Path, out: Path, host: Host, device: Device) -> tuple[str, str]:
    """Run it as the user that we are."""
    assert host is Host.BARE, "what may have code on the host stays in the box"
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | _environment(device) | {"HOME": str(out)},
        cwd=folder,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return TIMED_OUT, ""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return f"exit code {process.returncode}", said


def _environment(device: Device) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": device.uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _reason(end: str, report: str, said: str) -> str:
    if NOT_ALLOWED in report + said:
        return "this machine's driver shows a GPU's counters to the administrator only"
    if end == TIMED_OUT:
        return f"ncu {end}"
    lines = [line for line in (report + "\n" + said).splitlines() if line.strip()]
    told = [PREFIX.sub("", line) for line in lines if "==ERROR==" in line] or lines[-1:]
    return f"ncu saw no kernel ({end}): {' '.join(told)[:400] or 'it said nothing'}"


def _remedy(said: str) -> str:
    if NOT_ALLOWED in said:
        return "load the driver with NVreg_RestrictProfilingToAdminUsers=0, or leave --profile out"
    return "leave --profile out"
