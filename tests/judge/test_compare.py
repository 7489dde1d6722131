import math
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.judge.compare import Decision, Quads, decide, is_certain, unseen_gain
from swarm.judge.timing import Bound, Samples
from swarm.protocol import Tests, load_protocol
from swarm.verdict import Outcome, Trust

COORDINATION = Path(__file__).resolve().parents[2] / "COORDINATION.md"
TESTS: Tests = load_protocol(COORDINATION.read_text()).tests


def quads(
    ratio: float, noise: float = 0.01, count: int = 30, time_us: float = 1000.0, seed: int = 1
) -> Quads:
    dice = random.Random(seed)
    logs = [math.log(ratio) + dice.gauss(0, noise) for _ in range(count)]
    return Quads(logs, (Samples([time_us] * count), Samples([time_us / ratio] * count)))


def outcome(*ratios: float, **more: float) -> Decision:
    found = {f"w{i}": quads(ratio, seed=i, **more) for i, ratio in enumerate(ratios)}  # type: ignore[arg-type]
    return decide(found, TESTS, seed=7)


def test_a_clear_gain_is_faster() -> None:
    decision = outcome(1.05, 1.06)
    assert decision.outcome is Outcome.FASTER
    assert decision.low < decision.ratio < decision.high
    assert decision.ratio == pytest.approx(math.sqrt(1.05 * 1.06), rel=0.01)


def test_a_clear_loss_is_slower() -> None:
    assert outcome(0.95, 0.94).outcome is Outcome.SLOWER


def test_no_difference_with_a_narrow_interval_is_the_same() -> None:
    assert outcome(1.0, 1.0, noise=0.002).outcome is Outcome.SAME


def test_no_difference_in_much_noise_is_undecided() -> None:
    assert outcome(1.0, noise=0.1).outcome is Outcome.UNDECIDED


def test_a_gain_below_the_least_effect_is_not_faster() -> None:
    assert outcome(1.003, noise=0.001).outcome is not Outcome.FASTER


def test_the_least_effect_grows_for_short_kernels() -> None:
    assert outcome(1.012, noise=0.001, time_us=1000.0).outcome is Outcome.FASTER
    assert outcome(1.012, noise=0.001, time_us=3.0).outcome is not Outcome.FASTER


def test_a_ratio_is_certain_once_its_interval_is_narrow_beside_the_least_effect() -> None:
    assert is_certain(quads(1.0, noise=0.001), TESTS)
    assert is_certain(quads(1.3, noise=0.001), TESTS)
    assert not is_certain(quads(1.0, noise=0.02), TESTS)
    assert not is_certain(quads(1.0, noise=0.005), TESTS)
    assert is_certain(quads(1.0, noise=0.005, time_us=3.0), TESTS), "2 % count there, and not 0.5 %"


def test_one_workload_that_got_much_slower_spoils_the_gain() -> None:
    decision = outcome(1.5, 1.5, 0.9)
    assert decision.outcome is Outcome.UNDECIDED
    assert "workload w2 is" in decision.reason


def test_the_same_samples_and_seed_give_the_same_decision() -> None:
    assert outcome(1.02, 1.01) == outcome(1.02, 1.01)


def test_a_few_wild_quads_do_not_decide() -> None:
    found = quads(1.0, noise=0.002)
    found.log_ratios[:5] = [math.log(3)] * 5
    assert decide({"w": found}, TESTS, seed=1).outcome is not Outcome.FASTER


def bounded(claimed_us: float, seen_us: float, noise_us: float) -> Samples:
    """Return a side's claims, and what its core's clock saw of each."""
    dice = random.Random(f"{claimed_us}/{seen_us}")
    busy = Bound([dice.gauss(seen_us, noise_us) for _ in range(60)], [0.0] * 60)
    return Samples([claimed_us] * 60, [claimed_us] * 60, busy=busy)


@pytest.mark.parametrize(
    ("claimed_us", "seen_us", "is_doubted"),
    [(12.0, 12.0, False), (12.0, 15.0, False), (12.0, 20.0, True), (20.0, 12.0, False), (90.0, 90.0, False)],
    ids=["seen", "half", "not seen", "more than claimed", "a loss"],
)
def test_half_of_a_gain_must_be_seen_by_a_clock_out_of_reach(
    claimed_us: float, seen_us: float, is_doubted: bool
) -> None:
    quads = Quads(sides=(bounded(20.0, 20.0, 2.0), bounded(claimed_us, seen_us, 2.0)))
    doubt = unseen_gain(quads, one_core=True)
    assert bool(doubt) is is_doubted
    if is_doubted:
        assert "claims to save 8.0 us a call" in doubt


def test_a_clock_that_is_too_noisy_to_see_a_gain_says_nothing() -> None:
    quads = Quads(sides=(bounded(20.0, 20.0, 100.0), bounded(18.0, 20.0, 100.0)))
    assert unseen_gain(quads, one_core=True) == ""


def test_equal_trees_are_rarely_called_faster() -> None:
    found = [
        decide({f"w{w}": quads(1.0, noise=0.03, seed=97 * i + w) for w in range(4)}, TESTS, seed=i).outcome
        for i in range(200)
    ]
    assert found.count(Outcome.FASTER) <= 2


def test_a_difference_of_five_percent_is_found() -> None:
    found = [
        decide({f"w{w}": quads(1.05, noise=0.04, seed=97 * i + w) for w in range(4)}, TESTS, seed=i).outcome
        for i in range(50)
    ]
    assert found.count(Outcome.FASTER) >= 45


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=5), st.integers(0, 1000))
def test_swapping_the_two_trees_swaps_the_outcome(ratios: list[float], seed: int) -> None:
    forth = {f"w{i}": quads(ratio, noise=0.001) for i, ratio in enumerate(ratios)}
    back = {k: Quads([-x for x in q.log_ratios], (q.sides[1], q.sides[0])) for k, q in forth.items()}
    one, other = decide(forth, TESTS, seed), decide(back, TESTS, seed)
    assert one.ratio == pytest.approx(1 / other.ratio)
    if one.outcome is Outcome.FASTER:
        assert other.outcome is Outcome.SLOWER


@pytest.mark.parametrize(
    ("trust", "time_us", "believed_us", "outcome"),
    [
        (Trust.HOST, 9.0, 10.0, Outcome.UNDECIDED),
        (Trust.HOST, 9.0, 0.0, Outcome.FASTER),
        (Trust.HOST, 12.0, 10.0, Outcome.FASTER),
        (Trust.REPLAYED, 9.0, 10.0, Outcome.FASTER),
        (Trust.DEVICE_ONLY, 9.0, 10.0, Outcome.FASTER),
    ],
)
def test_host_code_is_not_believed_on_times_that_the_judges_clock_cannot_bound(
    trust: Trust, time_us: float, believed_us: float, outcome: Outcome
) -> None:
    """One workload that is too short is enough."""
    found = {"short": quads(1.05, time_us=time_us), "long": quads(1.05, time_us=500.0, seed=2)}
    decision = decide(found, TESTS, seed=7, trust=trust, believed_us=believed_us)
    assert decision.outcome is outcome
    assert ("too short to believe" in decision.reason) is (outcome is Outcome.UNDECIDED)
