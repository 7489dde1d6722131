"""Gathers what a report shows from hub, ledger and baselines. Reads only; broken records become warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from swarm.errors import BadInput
from swarm.foreign import INLINE_CHARS, inline, one_line
from swarm.hub import Epoch, Hub, Submission
from swarm.ledger import Ledger
from swarm.problem import SETTINGS_FILE
from swarm.report.history import History, Reign
from swarm.settings import is_marked_weak
from swarm.verdict import JUDGE_VERSION, Outcome, Verdict


@dataclass(frozen=True, slots=True)
class Collected:
    device: str
    histories: tuple[History, ...]
    comparisons: dict[str, dict[Outcome, int]]
    conditions: dict[str, str]
    warnings: tuple[str, ...]


def collect(
    hub: Hub, ledger: Ledger, *, device: str, baselines: Mapping[str, Mapping[str, float]]
) -> Collected:
    """Gather the histories of a run on a device model; `baselines` holds T_b by problem and workload uuid."""
    histories = []
    comparisons = {}
    warnings = []
    newest: Verdict | None = None
    for problem in sorted(hub.champions()):
        try:
            history = _history(hub, ledger, problem, device, baselines.get(problem, {}))
        except BadInput as error:
            warnings.append(f"{problem} is left aside: {error}")
            continue
        histories.append(history)
        epoch = hub.epoch(problem)
        comparisons[problem] = dict(
            Counter(
                c.outcome
                for c in ledger.comparisons(problem)
                if (c.epoch, c.judge_version, c.environment.device_model)
                == (epoch.hash, JUDGE_VERSION, device)
            )
        )
        warnings += [str(error) for error in ledger.broken(problem)]
        if history.missing:
            warnings.append(f"{problem}: {history.missing}")
        elif not history.baseline_us:
            warnings.append(f"{problem}: no whole baseline was measured; type: swarm baseline {problem}")
        for verdict in history.verdicts:
            if newest is None or verdict.created_s > newest.created_s:
                newest = verdict
    return Collected(device, tuple(histories), comparisons, _conditions(newest), tuple(warnings))


def mainline(submissions: Sequence[Submission], champion: str, epoch: Epoch) -> list[Submission]:
    """Return the commits that were champion in this epoch, oldest first: the first parents of the head."""
    by_commit = {submission.commit: submission for submission in submissions}
    line = []
    commit: str | None = champion
    while commit in by_commit:
        submission = by_commit[commit]
        line.append(submission)
        commit = submission.parents[0] if submission.parents and commit != epoch.commit else None
    return line[::-1]


def _history(
    hub: Hub, ledger: Ledger, problem: str, device: str, baseline_us: Mapping[str, float]
) -> History:
    epoch = hub.epoch(problem)
    line = mainline(hub.commits(problem), hub.champions()[problem], epoch)
    reigns = tuple(Reign(s.commit, s.tree, float(s.committed_s), s.subject) for s in line)
    verdicts = tuple(
        v
        for v in ledger.verdicts(problem)
        if (v.epoch, v.judge_version, v.environment.device_model) == (epoch.hash, JUDGE_VERSION, device)
    )
    settings = hub.frozen_file(epoch.commit, SETTINGS_FILE) or b""
    is_weak = is_marked_weak(settings, f"{problem}/{SETTINGS_FILE}")
    history = History(problem, reigns, verdicts, baseline_us, is_weak=is_weak)
    return replace(history, missing=_missing(history))


def _missing(history: History) -> str:
    verdict = history.champion
    if verdict is None:
        return "the head of the branch has no verdict yet"
    if verdict.time_us is not None:
        return ""
    return f"the head of the branch is {verdict.status}: {inline(verdict.reason)}"


def _conditions(verdict: Verdict | None) -> dict[str, str]:
    if verdict is None:
        return {}
    environment = verdict.environment
    return {
        "device": f"{environment.device_model} ({environment.device_uuid})",
        "timer": environment.timer,
        "sandbox": environment.sandbox,
        "trust": ": ".join(
            filter(None, (environment.trust, one_line(environment.trust_reason, INLINE_CHARS)))
        ),
        "judge version": str(verdict.judge_version),
        **environment.versions,
        **{name: str(value) for name, value in environment.facts.items()},
    }
