"""SIGKILL of roles at random moments: nothing acknowledged is lost, nothing is judged twice, the run goes on.

    python -m benchmarks.kills --kills 1000

Watcher, planner and two workers are real processes on a real hub and ledger; only the pool takes its times
from a table, so that a thousand kills take minutes. Each acknowledges what it has done in a log of its own,
and at the end hub and ledger must hold exactly that. Prints JSON; exit code 1 and the violations, if any.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# What roles import late is imported before they are forked: a kill should not cost a second of imports.
import git  # noqa: F401
import optuna  # noqa: F401
import watchdog.observers  # noqa: F401

from swarm import board as boards
from swarm.agents.protocol import Desk, Progress
from swarm.agents.tuner import Tuner
from swarm.hub import Submission
from swarm.layout import RunRoot
from swarm.ledger import Ledger
from swarm.role import Stop, beats
from swarm.verdict import Comparison, Outcome, Verdict, to_json
from tests.support import Swarm, TablePool, make_root, params_of, solution

ROLES = ("watcher", "planner", "w1", "w2")
TUNE = {"BLOCK": (1, 2, 4, 5), "UNROLL": (1, 2, 3), "VARIANT": (1, 3, 13)}
BEST = {"BLOCK": 5, "UNROLL": 3, "VARIANT": 3}
PROBLEMS_AT_ONCE = 2
ALL_AT_ONCE = 0.1
"""Share of kills that take every role at the same moment, as a machine that dies would."""
LONGEST_PAUSE_S = 0.35
DRAIN_S = 120.0


def campaign(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Run roles in `folder`, kill `kills` of them, let the run finish, and return what was found."""
    dice = random.Random(seed)
    root = make_root(folder, stall_verdicts=8, settle_verdicts=2)
    (folder / "acks").mkdir()
    started = 0
    with Swarm(root, workers=()) as swarm:
        pids = {role: _spawn(root, role) for role in ROLES}
        killed: Counter[str] = Counter()
        try:
            while sum(killed.values()) < kills:
                if _is_quiet(swarm) or not started:  # keep the roles busy until the last kill
                    names = [f"p{started + n}" for n in range(PROBLEMS_AT_ONCE)]
                    swarm.start(*names, seed=solution(TUNE, BLOCK=1, UNROLL=1, VARIANT=1))
                    started += len(names)
                time.sleep(dice.uniform(0, LONGEST_PAUSE_S))
                victims = ROLES if dice.random() < ALL_AT_ONCE else (dice.choice(ROLES),)
                for role in victims:
                    os.kill(pids[role], signal.SIGKILL)
                    os.waitpid(pids[role], 0)
                    killed[role] += 1
                for role in victims:
                    pids[role] = _spawn(root, role)
            violations = _wait_until_quiet(swarm, pids)
        finally:
            _stop(pids)
        violations += _check(swarm, folder / "acks")
        problems = list(swarm.hub.champions())
        return {
            "kills": dict(killed),
            "problems": len(problems),
            "commits": sum(len(swarm.hub.commits(p)) for p in problems),
            "verdicts": sum(len(swarm.ledger.verdicts(p)) for p in problems),
            "comparisons": sum(len(swarm.ledger.comparisons(p)) for p in problems),
            "merges": sum(len(_merges(swarm, p)) for p in problems),
            "violations": violations,
        }


# --- the roles, each in a process of its own ---------------------------------------------------------------


class NotedLedger(Ledger):
    """A ledger whose user acknowledges each record once it is on file."""

    log: Path

    def record(self, record: Verdict | Comparison) -> bool:
        is_new = super().record(record)
        identifier = record.key if isinstance(record, Verdict) else record.id
        if is_new:
            digest = hashlib.sha256(to_json(record)).hexdigest()
            _note(self.log, event="recorded", id=identifier, problem=record.problem, digest=digest)
        return is_new


class NotedTuner(Tuner):
    """A tuner that acknowledges each commit it was given."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log

    def step(self, desk: Desk) -> Progress:
        return super().step(_NotedDesk(desk, self._log))  # type: ignore[arg-type]  # it delegates the rest


class _NotedDesk:
    def __init__(self, desk: Desk, log: Path) -> None:
        self._desk, self._log = desk, log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._desk, name)

    def submit(self, files: Mapping[str, bytes], subject: str, body: str = "") -> str:
        commit = self._desk.submit(files, subject, body)
        _note(self._log, event="committed", commit=commit, problem=self._desk.branch.problem)
        return commit


def _spawn(root: RunRoot, role: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _be(root, role)
        code = 0
    except BaseException:
        logging.exception("%s died", role)
    finally:
        os._exit(code)


def _be(root: RunRoot, role: str) -> None:
    log = root.path / "acks" / f"{role}.jsonl"
    logging.basicConfig(filename=root.path / f"{role}.log", level=logging.INFO, force=True)
    stop = Stop(root.run("test").stop).on_signals()
    pool = TablePool(job_s=0.01, journal=log)
    workers = () if role in ("watcher", "planner") else (role,)
    swarm = Swarm(root, pool=pool, workers=workers, agent=lambda: NotedTuner(log))
    if role == "watcher":
        ledger = NotedLedger(swarm.paths)
        ledger.log = log
        swarm.watcher.ledger = ledger
        swarm.watcher.run(stop)
    elif role == "planner":
        swarm.planner.run(stop)
    else:
        [worker] = swarm.crew
        worker.stop = stop
        worker.run()


def _note(log: Path, **fields: object) -> None:
    line = json.dumps({**fields, "pid": os.getpid()}).encode() + b"\n"
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, line)  # one write, so that a kill leaves the line or nothing
    os.close(descriptor)


# --- what must hold ----------------------------------------------------------------------------------------


def _is_quiet(swarm: Swarm) -> bool:
    """Say whether the planner, knowing of every problem, has found the run finished."""
    planner = beats(swarm.paths).get("planner")
    board = boards.read(swarm.paths.board)
    known = {row.problem for row in board.problems} if board is not None else set()
    return planner is not None and bool(planner.facts["finished"]) and known == set(swarm.hub.champions())


def _wait_until_quiet(swarm: Swarm, pids: Mapping[str, int]) -> list[str]:
    end_s = time.monotonic() + DRAIN_S
    while time.monotonic() < end_s:
        for role, pid in pids.items():
            if os.waitpid(pid, os.WNOHANG) != (0, 0):
                return [f"{role} ended by itself; see its log"]
        if _is_quiet(swarm):
            return []
        time.sleep(0.2)
    return [f"the run did not finish within {DRAIN_S:g} s:\n{swarm.paths.board.read_text()}"]


def _stop(pids: Mapping[str, int]) -> None:
    for pid in pids.values():
        try:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):  # it had ended by itself
            continue


def _check(swarm: Swarm, acks: Path) -> list[str]:
    events = [json.loads(line) for path in sorted(acks.iterdir()) for line in path.read_text().splitlines()]
    commits = {s.commit for p in swarm.hub.champions() for s in swarm.hub.commits(p)}
    found = [
        f"commit {event['commit']} was acknowledged and is lost"
        for event in events
        if event["event"] == "committed" and event["commit"] not in commits
    ]
    found += _check_records(swarm, events)
    for problem in swarm.hub.champions():
        found += _check_problem(swarm, problem)
    command = ["git", f"--git-dir={swarm.paths.hub}", "fsck", "--strict"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        found.append(f"git fsck: {done.stdout} {done.stderr}")
    return found


def _check_records(swarm: Swarm, events: list[dict[str, str]]) -> list[str]:
    found = []
    recorded: set[tuple[str, str]] = set()
    started: set[tuple[str, str, str]] = set()
    for event in events:  # only the watcher's log has these, in the order in which they happened
        problem, identifier = event["problem"], event.get("id", "")
        if event["event"] == "start":
            if (problem, identifier) in recorded:
                found.append(f"{problem}: {identifier} was judged again after it was on file")
            if (problem, identifier, event["pid"]) in started:
                found.append(f"{problem}: {identifier} was judged twice by one watcher")
            started.add((problem, identifier, event["pid"]))
        elif event["event"] == "recorded":
            if (problem, identifier) in recorded:
                found.append(f"{problem}: {identifier} was recorded twice")
            recorded.add((problem, identifier))
            kept = swarm.ledger.verdict(problem, identifier) or swarm.ledger.comparison(problem, identifier)
            if kept is None or hashlib.sha256(to_json(kept)).hexdigest() != event["digest"]:
                found.append(f"result {identifier} was acknowledged and is lost or changed")
    return found


def _check_problem(swarm: Swarm, problem: str) -> list[str]:
    found = [str(error) for error in swarm.ledger.broken(problem)]
    verdicts = Counter(v.tree for v in swarm.ledger.verdicts(problem))
    submissions = swarm.hub.commits(problem)
    found += [
        f"{problem}: tree of {s.commit} has {verdicts[s.tree]} verdicts"
        for s in submissions
        if verdicts[s.tree] != 1
    ]
    if len({s.tree for s in submissions}) != len(verdicts):
        found.append(f"{problem}: {len(verdicts)} verdicts for {len({s.tree for s in submissions})} trees")
    if params_of(swarm.champion(problem)) != BEST:
        found.append(f"{problem}: the champion is {params_of(swarm.champion(problem))}, not the best")
    won = {c.id for c in swarm.ledger.comparisons(problem) if c.outcome is Outcome.FASTER}
    found += [
        f"{problem}: merged on {identifier}, which is no win"
        for merge in _merges(swarm, problem)
        for identifier in merge.trailers["Comparison"].split(", ")
        if identifier not in won
    ]
    return found


def _merges(swarm: Swarm, problem: str) -> list[Submission]:
    return [submission for submission in swarm.hub.commits(problem) if len(submission.parents) == 2]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = campaign(Path(folder), options.kills, options.seed)
        if found["violations"]:
            for log in sorted(Path(folder).glob("*.log")):
                print(f"--- {log.name}", *log.read_text().splitlines()[-30:], sep="\n", file=sys.stderr)
    print(json.dumps({**found, "seconds": round(time.monotonic() - begun_s, 1)}, indent=1))
    return 1 if found["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
