import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.judge.timing import Bound, Contradicted, Samples, Timed, finish, trimmed
from swarm.languages.protocol import Failure
from swarm.verdict import Status


def samples(claimed: float, hidden: float, noise: float = 0.0, count: int = 20) -> Samples:
    """Return what so many requests of one call gave, and the judge's clock of each."""
    dice = random.Random(3)
    wall = Bound(
        [claimed + hidden + dice.uniform(-noise, noise) for _ in range(count)],
        [10 + dice.uniform(-noise, noise) for _ in range(count)],
    )
    return Samples([claimed] * count, [claimed] * count, wall)


def test_a_quarter_of_wild_samples_does_not_move_the_centre() -> None:
    centre, _ = trimmed([10.0] * 30 + [1000.0] * 9)
    assert centre == 10.0


def test_one_sample_has_no_interval() -> None:
    assert trimmed([5.0]) == (5.0, float("inf"))


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    dice = random.Random(1)
    covered = 0
    for _ in range(400):
        centre, half_width = trimmed([dice.gauss(100, 5) for _ in range(30)])
        covered += abs(centre - 100) <= half_width
    assert covered / 400 > 0.9


@given(st.lists(st.floats(1, 1e6), min_size=2, max_size=60))
def test_the_centre_lies_among_the_samples(found: list[float]) -> None:
    centre, half_width = trimmed(found)
    assert min(found) * 0.999999 <= centre <= max(found) * 1.000001
    assert half_width >= 0


@given(st.lists(st.floats(1, 1e3), min_size=4, max_size=40), st.floats(0.1, 10))
def test_the_centre_scales_with_the_samples(found: list[float], factor: float) -> None:
    assert trimmed([x * factor for x in found])[0] == pytest.approx(trimmed(found)[0] * factor)


def test_honest_claims_are_taken() -> None:
    assert finish(samples(100.0, hidden=-3.0)) == Timed(100.0, 0.0, 20, quick_us=100.0)


@pytest.mark.parametrize(("claimed", "hidden"), [(10.0, 2.5), (100.0, 6.0), (1.0, 99.0)])
def test_time_that_the_judges_clock_saw_and_the_claims_hide_is_a_hack(claimed: float, hidden: float) -> None:
    failure = finish(samples(claimed, hidden))
    assert isinstance(failure, Failure)
    assert failure.status is Status.REWARD_HACK
    assert "the judge's clock" in failure.reason


@pytest.mark.parametrize(("claimed", "hidden"), [(10.0, 1.5), (100.0, 4.5)])
def test_what_the_clock_cannot_resolve_is_no_lie(claimed: float, hidden: float) -> None:
    assert isinstance(finish(samples(claimed, hidden)), Timed)


def test_on_a_noisy_machine_the_bound_widens_with_the_noise_of_the_control() -> None:
    noisy = samples(100.0, hidden=12.0, noise=30.0)
    low, _, high = statistics.quantiles(noisy.wall.control_us, n=4)
    assert high - low > 12
    assert isinstance(finish(noisy), Timed)


def test_a_lie_in_every_other_request_is_found() -> None:
    found = samples(100.0, hidden=0.0)
    found.claimed_us[::2] = found.request_us[::2] = [10.0] * 10
    assert isinstance(finish(found), Contradicted)


def test_time_that_the_cores_spent_and_the_claims_hide_is_a_hack_however_busy_the_machine_is() -> None:
    found = samples(100.0, hidden=0.0, noise=1000.0)
    found.busy = Bound([160.0] * 20, [10.0] * 20)
    failure = finish(found)
    assert isinstance(failure, Failure) and not isinstance(failure, Contradicted)
    assert failure.status is Status.REWARD_HACK
    assert "the clock of its cores saw 60.0 us more" in failure.reason


def test_a_few_requests_prove_nothing() -> None:
    assert isinstance(finish(samples(10.0, 50.0, count=4)), Timed)


def test_work_done_ahead_in_one_call_of_a_request_is_counted_whole() -> None:
    dice = random.Random(5)
    found = Samples()
    for _ in range(30):
        slots = dice.randint(1, 8)
        found.claimed_us += [100.0 * slots] + [0.0] * (slots - 1)
        found.request_us.append(100.0)
    assert trimmed(found.claimed_us)[0] < 100
    timed = finish(found)
    assert isinstance(timed, Timed)
    assert timed.time_us == pytest.approx(100)
