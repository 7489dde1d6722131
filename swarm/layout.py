"""Every path and ref name of a run root. No other module spells one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from swarm.errors import BadInput

NAME = re.compile(r"[a-z0-9](?:[a-z0-9_]|-(?=[a-z0-9_])){0,99}")
PROBLEM_REFS = "refs/heads/problem/"
WORK_REFS = "refs/heads/work/"
SALVAGE_REFS = "refs/salvage/"
STRAY = "_stray"
"""Below SALVAGE_REFS, beside the workers: refs that were in the way of ours."""


def check_name(kind: str, name: str) -> str:
    """Return `name`, or raise BadInput unless it can be a folder and a part of a ref everywhere."""
    if not NAME.fullmatch(name) or name.endswith("_lock"):
        raise BadInput(
            f"{kind} name {name!r} is not allowed",
            remedy="use lower-case letters, digits, '_' and single '-', at most 100 of them",
        )
    return name


@dataclass(frozen=True, slots=True)
class WorkBranch:
    """One assignment: worker `worker`, its `number`-th (counted per worker, over all problems)."""

    problem: str
    worker: str
    number: int

    @property
    def ref(self) -> str:
        return f"{WORK_REFS}{self.problem}/{self.worker}-{self.number}"


def problem_ref(problem: str) -> str:
    return PROBLEM_REFS + check_name("problem", problem)


def parse_ref(ref: str) -> str | WorkBranch | None:
    """Return the problem's name for problem/*, a WorkBranch for work/*, None for anything else."""
    if ref.startswith(PROBLEM_REFS):
        name = ref.removeprefix(PROBLEM_REFS)
        return name if NAME.fullmatch(name) else None
    match = re.fullmatch(r"([^/]+)/([^/]+)-([1-9]\d{0,8})", ref.removeprefix(WORK_REFS))
    if not ref.startswith(WORK_REFS) or match is None:
        return None
    problem, worker, number = match.groups()
    if not NAME.fullmatch(problem) or not NAME.fullmatch(worker):
        return None
    return WorkBranch(problem, worker, int(number))


@dataclass(frozen=True, slots=True)
class AgentPaths:
    """workspace/<run>/agents/<worker>/: the planner writes the inbox, the worker everything else."""

    dir: Path

    @property
    def inbox(self) -> Path:
        return self.dir / "inbox.md"

    @property
    def status(self) -> Path:
        return self.dir / "status.md"

    @property
    def transcript(self) -> Path:
        return self.dir / "transcript.jsonl"

    @property
    def submit_requests(self) -> Path:
        """Where `swarm submit` leaves a request and finds the answer."""
        return self.dir / "submit"


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The files of one run below a run root."""

    root: Path
    run: str

    @property
    def workspace(self) -> Path:
        return self.root / "workspace" / self.run

    @property
    def hub(self) -> Path:
        return self.workspace / "hub.git"

    @property
    def worktrees(self) -> Path:
        return self.workspace / "worktrees"

    def worktree(self, worker: str) -> Path:
        return self.worktrees / check_name("worker", worker)

    @property
    def board(self) -> Path:
        return self.workspace / "board.md"

    @property
    def knowledge(self) -> Path:
        return self.workspace / "knowledge.md"

    @property
    def agents(self) -> Path:
        return self.workspace / "agents"

    def agent(self, worker: str) -> AgentPaths:
        return AgentPaths(self.agents / check_name("worker", worker))

    @property
    def requests(self) -> Path:
        return self.workspace / "requests"

    def request(self, comparison_id: str) -> Path:
        return self.requests / f"{comparison_id}.json"

    @property
    def locks(self) -> Path:
        return self.workspace / "locks"

    def lock(self, name: str) -> Path:
        return self.locks / f"{name}.lock"

    @property
    def stop(self) -> Path:
        """Present while the run is asked to stop; every role looks for it between two steps."""
        return self.workspace / "stop.json"

    @property
    def state(self) -> Path:
        """How this run was started (agent, language, workers, problems, deadline), for its roles."""
        return self.workspace / "run.json"

    @property
    def logs(self) -> Path:
        return self.workspace / "logs"

    @property
    def heartbeats(self) -> Path:
        """One small JSON per role and device, rewritten by its owner."""
        return self.workspace / "heartbeats"

    @property
    def index(self) -> Path:
        """SQLite; a cache of the result files that can be deleted at any time."""
        return self.workspace / "index.sqlite"

    @property
    def results(self) -> Path:
        return self.root / "results" / self.run

    def verdicts(self, problem: str) -> Path:
        return self.results / "verdicts" / check_name("problem", problem)

    def verdict(self, problem: str, key: str) -> Path:
        return self.verdicts(problem) / f"{key}.json"

    def refusals(self, problem: str) -> Path:
        return self.results / "refusals" / check_name("problem", problem)

    def comparisons(self, problem: str) -> Path:
        return self.results / "comparisons" / check_name("problem", problem)

    def comparison(self, problem: str, comparison_id: str) -> Path:
        return self.comparisons(problem) / f"{comparison_id}.json"

    @property
    def scoreboard_json(self) -> Path:
        return self.results / "scoreboard.json"

    @property
    def scoreboard_md(self) -> Path:
        return self.results / "scoreboard.md"

    @property
    def report_html(self) -> Path:
        return self.results / "report.html"

    @property
    def hub_bundle(self) -> Path:
        return self.results / "hub.bundle"


@dataclass(frozen=True, slots=True)
class RunRoot:
    """The folder that holds COORDINATION.md, swarm.toml, problems/, workspace/ and results/."""

    path: Path

    @property
    def coordination(self) -> Path:
        return self.path / "COORDINATION.md"

    @property
    def config(self) -> Path:
        return self.path / "swarm.toml"

    @property
    def problems(self) -> Path:
        return self.path / "problems"

    def problem(self, name: str) -> Path:
        return self.problems / check_name("problem", name)

    @property
    def guides(self) -> Path:
        return self.path / "guides"

    @property
    def workspace(self) -> Path:
        return self.path / "workspace"

    @property
    def build_cache(self) -> Path:
        """Compiled artifacts by content; shared by the runs of this root, disposable."""
        return self.path / "workspace" / ".cache"

    @property
    def judge_logs(self) -> Path:
        return self.path / "workspace" / ".logs"

    @property
    def faults(self) -> Path:
        """Where a command that met a fault of ours leaves its log."""
        return self.path / "workspace" / ".faults"

    def run(self, name: str) -> RunPaths:
        return RunPaths(self.path, check_name("run", name))

    def runs_with_results(self) -> list[Path]:
        """Return the results folders of all runs; baselines belong to none."""
        folders = (self.path / "results").glob("*/verdicts")
        return sorted(folder.parent for folder in folders if NAME.fullmatch(folder.parent.name))

    def baselines(self, device_model: str) -> Path:
        return self.path / "results" / "baselines" / device_model

    def baseline(self, device_model: str, problem: str) -> Path:
        return self.baselines(device_model) / f"{check_name('problem', problem)}.json"

    def peaks(self, device_model: str) -> Path:
        """Calibrated peaks of a device that no published table covers (a CPU)."""
        return self.baselines(device_model) / "peaks.json"


def locate_worktree(root: RunRoot, folder: Path) -> tuple[RunPaths, str]:
    """Return the run and the worker whose worktree holds `folder`, or raise BadInput."""
    parts = folder.relative_to(root.path).parts if folder.is_relative_to(root.path) else ()
    if len(parts) >= 4 and parts[0] == "workspace" and parts[2] == "worktrees":
        return root.run(parts[1]), check_name("worker", parts[3])
    raise BadInput(
        f"{folder} is not in a worktree", remedy="go to workspace/<run>/worktrees/<worker> and try again"
    )


def find_root(start: Path) -> RunRoot:
    """Return the run root that holds `start`, or raise BadInput naming the command that makes one."""
    for folder in (start, *start.parents):
        if (folder / "COORDINATION.md").is_file() and (folder / "swarm.toml").is_file():
            return RunRoot(folder)
    raise BadInput(f"no run root at or above {start}", remedy="type: swarm init DIR")
