"""One planner decision over many problems and verdicts, loading the facts included. Prints JSON.

    python -m benchmarks.planner --problems 235 --verdicts 10000

`warm` is a decision of a planner at work after one new verdict came in; `fresh` is the first decision of a
planner that has just started and finds the index warm; `cold` is the same without an index. The verdicts and
commits are made up, the hub, the ledger and the index are real.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from swarm.git import ZERO, RefChange, Repo
from swarm.hub import Hub
from swarm.job import Job, Purpose, Tree
from swarm.layout import RunPaths, WorkBranch
from swarm.ledger import Ledger
from swarm.planner.gather import Gatherer
from swarm.planner.policy import decide
from swarm.protocol import Protocol, load_protocol
from swarm.verdict import to_json, verdict_key
from tests.support import DEVICE, Swarm, make_root, solution, verdict_of

ROUNDS = 25


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--problems", type=int, default=235)
    parser.add_argument("--verdicts", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = make_root(Path(folder))
        with Swarm(root, workers=()) as swarm:
            _fill(swarm, options.problems, options.verdicts)
        protocol = load_protocol(root.coordination.read_text())
        paths = root.run("test")
        cold_s, _ = _decision(paths, protocol)
        fresh = [_decision(paths, protocol)[0] for _ in range(ROUNDS)]
        warm = _warm(paths, protocol)
        count = _decision(paths, protocol)[1]
    result = {
        "problems": options.problems,
        "verdicts": count,
        "warm_ms": _spread(warm),
        "fresh_ms": _spread(fresh),
        "cold_ms": round(cold_s * 1e3, 1),
    }
    print(json.dumps(result, indent=1))
    return 0


def _decision(paths: RunPaths, protocol: Protocol) -> tuple[float, int]:
    """Decide as a planner that has just started; return the seconds and the judged commits it saw."""
    with Hub(paths) as hub, Ledger(paths) as ledger:
        gatherer = Gatherer(paths, hub, ledger, DEVICE.model)
        begun_s = time.perf_counter()
        facts = gatherer.gather(None, None, protocol, time.time())
        decide(facts, time.time())
        seconds = time.perf_counter() - begun_s
    return seconds, sum(t.status is not None for p in facts.problems for t in p.trials)


def _warm(paths: RunPaths, protocol: Protocol) -> list[float]:
    """Decide again and again in one planner, each time after one more verdict."""
    with Hub(paths) as hub, Ledger(paths) as ledger:
        gatherer = Gatherer(paths, hub, ledger, DEVICE.model)
        problems = sorted(hub.champions())

        def decision() -> float:
            begun_s = time.perf_counter()
            decide(gatherer.gather(None, None, protocol, time.time()), time.time())
            return time.perf_counter() - begun_s

        decision()
        found = []
        for number in range(ROUNDS):
            _judge_one_more(hub, ledger, problems[number % len(problems)], number)
            time.sleep(0.05)  # as in the loop: file times come from a clock that ticks every few milliseconds
            found.append(decision())
        return found


def _judge_one_more(hub: Hub, ledger: Ledger, problem: str, number: int) -> None:
    branch = next(branch.work for branch in hub.branches() if branch.work.problem == problem)
    commit = hub.submit(branch.worker, branch, solution(BLOCK=1_000_000 + number), None, "One more", {})
    submission = next(s for s in hub.commits(problem) if s.commit == commit)
    key = verdict_key(submission.tree, submission.epoch, DEVICE.model)
    tree = Tree(submission.tree, commit, solution(BLOCK=2))
    ledger.record(verdict_of(Job(key, Purpose.VERDICT, problem, submission.epoch, {}, tree), lambda _: 90.0))


def _fill(swarm: Swarm, problems: int, verdicts: int) -> None:
    """Give each problem a line of judged commits, written as git and the ledger would have them."""
    dice = random.Random(1)
    names = [f"p{number:03d}" for number in range(problems)]
    swarm.start(*names, seed=solution(BLOCK=1))
    share = [verdicts // problems + (number < verdicts % problems) for number in range(problems)]
    for name, count in zip(names, share, strict=True):
        head = swarm.hub.champions()[name]
        branch = WorkBranch(name, f"w{dice.randrange(1, 33)}", int(name[1:]) + 1)
        with Repo(swarm.paths.hub) as repo:
            base, parent = repo.read_tree(repo.commit(head).tree), head
            for number in range(count - 1):  # the seed has a verdict too
                text = {f"solution/{p}": data for p, data in solution(BLOCK=number + 2).items()}
                tree = repo.write_tree(base | text)
                parent = repo.commit_tree(tree, [parent], f"BLOCK 1 -> {number + 2}\n", branch.worker)
            repo.update_refs([RefChange(branch.ref, parent, ZERO)], "fill")
    table: Callable[[Tree], float] = lambda _: dice.uniform(20, 200)  # noqa: E731
    for name in names:
        folder = swarm.paths.verdicts(name)
        folder.mkdir(parents=True)
        for submission in swarm.hub.commits(name):
            key = verdict_key(submission.tree, submission.epoch, DEVICE.model)
            tree = Tree(submission.tree, submission.commit, solution(BLOCK=1))
            record = verdict_of(Job(key, Purpose.VERDICT, name, submission.epoch, {}, tree), table)
            (folder / f"{key}.json").write_bytes(to_json(record))  # without fsync: nobody kills this


def _spread(seconds: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(seconds) * 1e3, 1),
        "worst": round(max(seconds) * 1e3, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
