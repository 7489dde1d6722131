"""The policy as a table: these facts, these decisions; then what must hold for any facts."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.layout import WorkBranch
from swarm.planner.decisions import Assign, Decision, Merge, Reassign, RequestComparison, Retire, Wait
from swarm.planner.facts import Facts, Match, ProblemFacts, Rules, Trial, WorkerFacts
from swarm.planner.policy import decide, is_finished
from swarm.verdict import Outcome, Status

PROMPT = Rules(settle_verdicts=0, stall_verdicts=3)
NOW_S = 1000.0
numbers = count(1)


def sha(text: object) -> str:
    return hashlib.sha1(str(text).encode()).hexdigest()


def trial(
    tree: str,
    time_us: float | None = None,
    *,
    line: str | None = "w1-1",
    at_s: float | None = None,
    **more: object,
) -> Trial:
    """A judged trial of problem `p`; without a time it failed."""
    branch = None
    if line is not None:
        worker, number = line.split("-")
        branch = WorkBranch("p", worker, int(number))
    status = Status.PASSED if time_us is not None else Status.TIMEOUT
    return Trial(sha("c" + tree), sha(tree), branch, at_s or next(numbers) * 1e-3, status, time_us)._replace(
        **more
    )


def problem(*trials: Trial, seed_us: float | None = 100.0, **more: object) -> ProblemFacts:
    seed = trial("seed", seed_us, line=None, at_s=1e-9)
    return replace(ProblemFacts("p", seed.commit, seed.tree, (seed, *trials)), **more)  # type: ignore[arg-type]


def match(
    candidate: str, outcome: Outcome, number: int = 1, champion: str = "seed", ratio: float = 1.1
) -> Match:
    identifier = f"{sha(champion)[:8]}-{sha(candidate)[:8]}-{number}"
    return Match(identifier, sha(champion), sha(candidate), outcome, ratio)


def compared(*matches: Match) -> dict[str, object]:
    return {"matches": matches, "used_ids": frozenset(m.id for m in matches)}


def worker(name: str = "w1", branch: str | None = "p", **more: object) -> WorkerFacts:
    held = WorkBranch(branch, name, 1) if branch else None
    return replace(WorkerFacts(name, True, newest=held, branch=held), **more)  # type: ignore[arg-type]


def only(
    problem: ProblemFacts, *workers: WorkerFacts, rules: Rules = PROMPT, now_s: float = 1.0
) -> list[Decision]:
    return decide(Facts((problem,), workers, rules), now_s)


F, S, X, U = Outcome.FASTER, Outcome.SLOWER, Outcome.SAME, Outcome.UNDECIDED


# --- promotion -------------------------------------------------------------------------------------------


def test_a_faster_verdict_asks_for_a_comparison() -> None:
    [decision] = only(problem(trial("a", 90.0), trial("b", 80.0)))
    assert isinstance(decision, RequestComparison)
    assert decision.id == f"{sha('seed')[:8]}-{sha('b')[:8]}-1"
    assert (decision.champion, decision.candidate) == (sha("cseed"), sha("cb"))


@pytest.mark.parametrize(
    ("champion_us", "candidate_us", "counts"),
    [
        (4.0, 3.95, False),
        (4.0, 3.9, True),
        (40.0, 39.7, False),
        (40.0, 39.5, True),
        (400.0, 398.5, False),
        (400.0, 397.0, True),
    ],
)
def test_a_gain_counts_from_the_minimum_effect_of_its_band(
    champion_us: float, candidate_us: float, counts: bool
) -> None:
    [decision] = only(problem(trial("a", candidate_us), seed_us=champion_us))
    assert isinstance(decision, RequestComparison) is counts


def test_one_faster_is_confirmed_once_more_before_the_merge() -> None:
    facts = problem(trial("a", 90.0), **compared(match("a", F)))
    [decision] = only(facts)
    assert isinstance(decision, RequestComparison)
    assert decision.id.endswith("-2")
    facts = problem(trial("a", 90.0), **compared(match("a", F, 1, ratio=1.1), match("a", F, 2, ratio=1.21)))
    [decision] = only(facts)
    assert isinstance(decision, Merge)
    assert (decision.champion, decision.candidate) == (sha("cseed"), sha("ca"))
    assert decision.comparisons == tuple(m.id for m in facts.matches)
    assert decision.speedup == pytest.approx((1.1 * 1.21) ** 0.5)


def test_the_number_of_confirmations_is_obeyed() -> None:
    facts = problem(trial("a", 90.0), **compared(match("a", F)))
    assert isinstance(only(facts, rules=replace(PROMPT, confirmations=0))[0], Merge)
    twice = problem(trial("a", 90.0), **compared(match("a", F, 1), match("a", F, 2)))
    assert isinstance(only(twice, rules=replace(PROMPT, confirmations=2))[0], RequestComparison)


@pytest.mark.parametrize("outcome", [S, X, U])
@pytest.mark.parametrize("first", [(), (F,)])
def test_a_candidate_that_is_not_faster_is_done_with(outcome: Outcome, first: tuple[Outcome, ...]) -> None:
    matches = [match("b", o, n) for n, o in enumerate((*first, outcome), 1)]
    [decision] = only(problem(trial("a", 90.0), trial("b", 80.0), **compared(*matches)))
    assert isinstance(decision, RequestComparison)
    assert decision.candidate == sha("ca")


def test_what_was_begun_is_finished_before_a_better_candidate() -> None:
    [decision] = only(problem(trial("a", 90.0), trial("b", 80.0), **compared(match("a", F))))
    assert isinstance(decision, RequestComparison)
    assert decision.candidate == sha("ca")


def test_an_open_request_is_awaited() -> None:
    facts = problem(trial("a", 90.0), requested=frozenset({"x"}))
    assert only(facts) == [Wait("0 verdicts and 1 comparisons awaited")]


def test_an_id_is_never_used_twice_even_if_its_record_is_stale() -> None:
    stale = f"{sha('seed')[:8]}-{sha('a')[:8]}"
    [decision] = only(problem(trial("a", 90.0), used_ids=frozenset({f"{stale}-1", f"{stale}-2"})))
    assert isinstance(decision, RequestComparison)
    assert decision.id == f"{stale}-3"


def test_nothing_is_promoted_before_the_champion_is_measured() -> None:
    facts = problem(trial("a", 90.0))
    pending = facts.trials[0]._replace(status=None, time_us=None)
    [decision] = only(replace(facts, trials=(pending, *facts.trials[1:])))
    assert isinstance(decision, Wait)


def test_a_champion_that_fails_is_replaced_by_the_best_that_passes() -> None:
    [decision] = only(problem(trial("a", 90.0), trial("b", 80.0), trial("c"), seed_us=None))
    assert isinstance(decision, Merge)
    assert (decision.candidate, decision.speedup, decision.comparisons) == (sha("cb"), None, ())
    assert "TIMEOUT" in decision.reason


def test_a_former_champion_and_a_refused_commit_are_no_candidates() -> None:
    former = frozenset({sha("a")})
    [decision] = only(problem(trial("a", 90.0), trial("b", 80.0, refused=True), former_champions=former))
    assert isinstance(decision, Wait)


def test_a_tree_of_a_refused_commit_may_be_merged_through_another_commit() -> None:
    again = trial("a", 90.0, commit=sha("again"))
    [decision] = only(problem(trial("a", 90.0, refused=True), again))
    assert isinstance(decision, RequestComparison)
    assert decision.candidate == sha("again")


def test_who_was_faster_than_an_earlier_champion_meets_the_new_one() -> None:
    won = match("b", F, champion="old")
    [decision] = only(problem(trial("b", 101.0), **compared(won)))
    assert isinstance(decision, RequestComparison)
    assert decision.candidate == sha("cb")


@pytest.mark.parametrize(
    ("later", "now_s", "attended", "asked"),
    [
        (0, 1.0, True, False),
        (1, 1.0, True, False),
        (2, 1.0, True, True),
        (0, 31.0, True, True),
        (0, 1.0, False, True),
    ],
    ids=["just found", "one later", "two later", "long ago", "nobody works on it"],
)
def test_a_line_that_still_improves_is_not_compared_at_every_step(
    later: int, now_s: float, attended: bool, asked: bool
) -> None:
    rules = Rules(settle_verdicts=2, settle_s=20.0)
    found = [trial("a", 50.0, at_s=0.5), *(trial(f"l{n}", 60.0, at_s=0.6 + n / 100) for n in range(later))]
    decisions = only(
        problem(*found), *([worker(assigned_s=now_s)] if attended else []), rules=rules, now_s=now_s
    )
    assert any(isinstance(d, RequestComparison) for d in decisions) is asked


# --- assignments -----------------------------------------------------------------------------------------


def named(name: str, *trials: Trial, **more: object) -> ProblemFacts:
    moved = [t._replace(branch=replace(t.branch, problem=name)) if t.branch else t for t in trials]
    return replace(problem(*moved, **more), name=name)


def test_every_problem_is_visited_before_any_is_visited_twice() -> None:
    problems = tuple(named(name) for name in "pqrs")
    workers = tuple(worker(f"w{n}", None) for n in range(1, 4))
    decisions = decide(Facts(problems, workers, PROMPT), 1.0)
    assert [(d.worker, d.problem) for d in decisions if isinstance(d, Assign)] == [
        ("w1", "p"),
        ("w2", "q"),
        ("w3", "r"),
    ]


def test_an_improving_worker_goes_on_where_all_are_visited_and_leaves_where_not() -> None:
    improving = [trial(f"t{n}", 90.0 - 10 * n) for n in range(4)]
    rules = replace(PROMPT, settle_verdicts=99)
    visited = named("q", trial("x", 100.0, line="w9-1"))
    assert isinstance(decide(Facts((named("p", *improving), visited), (worker(),), rules), 1.0)[0], Wait)
    [decision] = decide(Facts((named("p", *improving), named("q")), (worker(),), rules), 1.0)
    assert isinstance(decision, Reassign)
    assert (decision.worker, decision.problem, decision.previous) == ("w1", "q", WorkBranch("p", "w1", 1))


def test_a_stalled_line_is_left_and_a_single_problem_is_not() -> None:
    line = [trial("a", 90.0), *(trial(f"s{n}", 100.0) for n in range(3))]
    other = named("q", trial("x", 100.0, line="w9-1"))
    settled = compared(match("a", X))
    [decision] = decide(Facts((named("p", *line, **settled), other), (worker(),), PROMPT), 1.0)
    assert isinstance(decision, Reassign)
    assert "3 verdicts without an improvement" in decision.reason
    assert isinstance(only(problem(*line, **settled), worker())[0], Wait)


def test_time_alone_stalls_a_line() -> None:
    other = named("q", trial("x", 100.0, line="w9-1"))
    rules = replace(PROMPT, stall_minutes=5)
    facts = Facts((named("p"), other), (worker(assigned_s=100.0),), rules)
    assert isinstance(decide(facts, 399.0)[0], Wait)
    [decision] = decide(facts, 400.0)
    assert isinstance(decision, Reassign)
    assert "5 minutes" in decision.reason


def test_busy_is_not_improving() -> None:
    tiny_gains = [trial(f"t{n}", 100.0 * (1 - 0.001 * n)) for n in range(1, 5)]
    other = named("q", trial("x", 100.0, line="w9-1"))
    [decision] = decide(Facts((named("p", *tiny_gains), other), (worker(),), PROMPT), 1.0)
    assert isinstance(decision, Reassign)


def test_an_exhausted_worker_moves_on_or_retires() -> None:
    done = worker(exhausted=True)
    visited = named("q", trial("x", 100.0, line="w9-1"))
    [decision] = decide(Facts((named("p"), visited), (done,), PROMPT), 1.0)
    assert isinstance(decision, Reassign)
    [decision] = decide(Facts((named("p"), replace(visited, exhausted=True)), (done,), PROMPT), 1.0)
    assert decision == Retire("w1", WorkBranch("p", "w1", 1), "nothing left to try")
    [decision] = decide(Facts((named("p", exhausted=True),), (worker(branch=None),), PROMPT), 1.0)
    assert isinstance(decision, Wait)


def test_the_limit_of_workers_per_problem_holds() -> None:
    rules = replace(PROMPT, max_workers_per_problem=2)
    workers = tuple(worker(f"w{n}", None) for n in range(5))
    decisions = decide(Facts((named("p"), named("q")), workers, rules), 1.0)
    assert Counter(d.problem for d in decisions if isinstance(d, Assign)) == {"p": 2, "q": 2}


def test_headroom_attracts() -> None:
    tries = [trial(f"t{n}", 100.0, line="w9-1") for n in range(4)]
    near, far = named("near", *tries, t_sol_us=95.0), named("far", *tries, t_sol_us=5.0)
    [decision] = decide(Facts((near, far), (worker(branch=None),), PROMPT), 1.0)
    assert isinstance(decision, Assign)
    assert decision.problem == "far"


def test_a_rising_rate_attracts_and_exploration_gives_the_neglected_a_turn() -> None:
    rising = named(
        "rising", *(trial(f"r{n}", 90.0 * 0.9**n, line="w9-1") for n in range(8)), **compared(match("r7", X))
    )
    flat = named("flat", *(trial(f"f{n}", 100.0, line="w8-1") for n in range(2)))

    def target(exploration: float) -> str:
        rules = replace(PROMPT, exploration=exploration, settle_verdicts=99)
        decisions = decide(Facts((flat, rising), (worker(branch=None),), rules), 1e-4)
        return next(d.problem for d in decisions if isinstance(d, Assign))

    assert target(0.0) == "rising"
    assert target(5.0) == "flat"


def test_a_lost_worker_loses_its_place_and_a_sleeping_one_keeps_it() -> None:
    lost = worker("w1", is_up=False, is_lost=True)
    asleep = worker("w2", is_up=False)
    facts = Facts(
        (named("p"),), (lost, asleep, worker("w3", None)), replace(PROMPT, max_workers_per_problem=1)
    )
    decisions = decide(facts, 1.0)
    assert [d for d in decisions if isinstance(d, Retire)] == [
        Retire("w1", WorkBranch("p", "w1", 1), "no sign of life")
    ]
    assert [d.worker for d in decisions if isinstance(d, Assign)] == ["w3"]


def test_a_malformed_board_stops_assignments_and_nothing_else() -> None:
    facts = Facts(
        (problem(trial("a", 90.0)),), (worker("w2", None),), PROMPT, board_fault="board.md:7: broken"
    )
    [decision] = decide(facts, 1.0)
    assert isinstance(decision, RequestComparison)


def test_a_run_is_finished_when_nothing_is_left_or_under_way() -> None:
    done = problem(exhausted=True)
    assert is_finished(Facts((done,), (worker(branch=None),), PROMPT))
    assert not is_finished(Facts((done,), (worker(),), PROMPT))
    assert not is_finished(Facts((problem(),), (), PROMPT))
    pending = problem(trial("a", None, status=None), exhausted=True)
    assert not is_finished(Facts((pending,), (), PROMPT))


# --- whatever the facts ----------------------------------------------------------------------------------


@st.composite
def any_facts(draw: st.DrawFn) -> Facts:
    names = draw(st.lists(st.sampled_from("pqr"), unique=True, min_size=1))
    workers = []
    for name in ("w1", "w2", "w3"):
        held = draw(
            st.none() | st.builds(WorkBranch, st.sampled_from("pqrz"), st.just(name), st.integers(1, 3))
        )
        is_up = draw(st.booleans())
        workers.append(
            WorkerFacts(
                name,
                is_up,
                is_lost=not is_up and draw(st.booleans()),
                newest=held,
                branch=draw(st.sampled_from([held, None])),
                assigned_s=draw(st.floats(0, 2000)),
                exhausted=draw(st.booleans()),
            )
        )
    problems = [draw(any_problem(name)) for name in names]
    rules = Rules(
        confirmations=draw(st.integers(0, 2)),
        settle_verdicts=draw(st.integers(0, 3)),
        stall_verdicts=draw(st.integers(1, 5)),
        max_workers_per_problem=draw(st.integers(1, 3)),
    )
    return Facts(tuple(problems), tuple(workers), rules, draw(st.none() | st.just("broken")))


@st.composite
def any_problem(draw: st.DrawFn, name: str) -> ProblemFacts:
    trees = [sha(f"{name}{n}") for n in range(5)]
    lines = st.none() | st.builds(
        WorkBranch, st.just(name), st.sampled_from(["w1", "w2", "w3"]), st.integers(1, 3)
    )
    trials = []
    for number in range(draw(st.integers(1, 8))):
        status = draw(st.sampled_from([None, Status.PASSED, Status.PASSED, Status.TIMEOUT]))
        time_us = draw(st.floats(1, 1000)) if status is Status.PASSED else None
        at_s = draw(st.floats(0, 2000))
        refused = draw(st.booleans())
        trials.append(
            Trial(
                sha((name, number)), draw(st.sampled_from(trees)), draw(lines), at_s, status, time_us, refused
            )
        )
    matches = []
    for _ in range(draw(st.integers(0, 5))):
        champion, candidate = draw(st.sampled_from(trees)), draw(st.sampled_from(trees))
        number = draw(st.integers(1, 4))
        matches.append(
            Match(
                f"{champion[:8]}-{candidate[:8]}-{number}",
                champion,
                candidate,
                draw(st.sampled_from(Outcome)),
                1.2,
            )
        )
    champion = draw(st.sampled_from(trials))
    return ProblemFacts(
        name,
        champion.commit,
        champion.tree,
        tuple(sorted(trials, key=lambda t: t.at_s)),
        tuple(matches),
        frozenset(m.id for m in matches),
        draw(st.sampled_from([frozenset(), frozenset({"open"})])),
        draw(st.frozensets(st.sampled_from(trees), max_size=2)),
        draw(st.none() | st.floats(0.1, 100)),
        draw(st.booleans()),
    )


@given(any_facts(), st.floats(0, 5000))
def test_the_same_facts_give_the_same_decisions(facts: Facts, now_s: float) -> None:
    assert decide(facts, now_s) == decide(facts, now_s)


@given(any_facts(), st.floats(0, 5000))
def test_a_worker_gets_one_assignment_at_most_and_only_to_an_open_problem(facts: Facts, now_s: float) -> None:
    decisions = decide(facts, now_s)
    moves = [d for d in decisions if isinstance(d, Assign | Reassign | Retire)]
    assert len({d.worker for d in moves}) == len(moves)
    workers = {w.worker: w for w in facts.workers}
    problems = {p.name: p for p in facts.problems}
    for move in moves:
        held = workers[move.worker]
        if isinstance(move, Assign):
            assert held.is_up
            assert held.branch is None
            assert move.previous == held.newest
        else:
            assert move.previous == held.branch
        if isinstance(move, Assign | Reassign):
            assert not problems[move.problem].exhausted
        if isinstance(move, Reassign):
            assert move.problem != move.previous.problem


@given(any_facts(), st.floats(0, 5000))
def test_no_problem_gets_more_workers_than_allowed(facts: Facts, now_s: float) -> None:
    decisions = decide(facts, now_s)
    gone = {d.worker for d in decisions if isinstance(d, Reassign | Retire)}
    load = Counter(w.branch.problem for w in facts.workers if w.is_up and w.branch and w.worker not in gone)
    before = Counter(load)
    load.update(d.problem for d in decisions if isinstance(d, Assign | Reassign))
    for name, workers in load.items():
        assert workers <= max(facts.rules.max_workers_per_problem, before[name])


@given(any_facts(), st.floats(0, 5000))
def test_only_what_was_measured_and_confirmed_is_merged(facts: Facts, now_s: float) -> None:
    problems = {p.name: p for p in facts.problems}
    for decision in decide(facts, now_s):
        if not isinstance(decision, Merge | RequestComparison):
            continue
        held = problems[decision.problem]
        assert decision.champion == held.champion
        candidate = next(t for t in held.trials if t.commit == decision.candidate)
        assert candidate.status is Status.PASSED
        assert candidate.time_us is not None
        assert not candidate.refused
        champion = next(t for t in held.trials if t.tree == held.champion_tree)
        if isinstance(decision, RequestComparison):
            assert decision.id not in held.used_ids
            assert not held.requested
        elif champion.status is Status.PASSED:
            pair = [
                m
                for m in held.matches
                if (m.champion_tree, m.candidate_tree) == (held.champion_tree, candidate.tree)
            ]
            assert len(pair) > facts.rules.confirmations
            assert {m.outcome for m in pair} == {Outcome.FASTER}
            assert decision.comparisons == tuple(m.id for m in pair)


@given(any_facts(), st.floats(0, 5000))
def test_an_unreadable_board_assigns_nobody(facts: Facts, now_s: float) -> None:
    decisions = decide(replace(facts, board_fault="broken"), now_s)
    assert not [d for d in decisions if isinstance(d, Assign | Reassign | Retire)]
