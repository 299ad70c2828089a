"""The breaker and the retry budget, by a clock that is told."""

from rectifier_core.breaker import PROBE_WAIT_S, Breaker, Call, RetryBudget


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def fail(breaker: Breaker) -> None:
    breaker.failed(breaker.begin())


def probe(breaker: Breaker) -> Call:
    call = breaker.begin()
    assert breaker.admit(call)
    return call


def admits(breaker: Breaker) -> bool:
    return breaker.admit(breaker.begin())


def opened(clock: Clock) -> Breaker:
    breaker = Breaker(failures=3, open_seconds=2, longest_open_seconds=30, clock=clock)
    for _ in range(3):
        assert admits(breaker)
        fail(breaker)
    return breaker


def test_success_between_failures_keeps_it_closed() -> None:
    breaker = Breaker(failures=3, clock=Clock())
    for _ in range(5):
        fail(breaker)
        fail(breaker)
        breaker.succeeded()
    assert admits(breaker)


def test_undecided_calls_do_not_break_a_row_of_failures() -> None:
    breaker = Breaker(failures=2, clock=Clock())
    fail(breaker)
    breaker.undecided(breaker.begin())
    fail(breaker)
    assert not admits(breaker)


def test_retries_of_a_call_count_once() -> None:
    breaker = Breaker(failures=2, clock=Clock())
    call = breaker.begin()
    for _ in range(9):
        assert breaker.admit(call)
        breaker.failed(call)
    fail(breaker)
    assert not admits(breaker)


def test_calls_that_overlap_count_once() -> None:
    breaker = Breaker(failures=2, clock=Clock())
    for call in [breaker.begin() for _ in range(9)]:
        breaker.failed(call)
    assert admits(breaker)
    for call in [breaker.begin() for _ in range(9)]:
        breaker.failed(call)
    assert not admits(breaker)


def test_open_breaker_says_how_long() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 0.5
    assert breaker.refuses_for == 1.5
    assert not admits(breaker)


def test_failures_of_calls_from_before_do_not_prolong_it() -> None:
    clock = Clock()
    breaker = Breaker(failures=3, open_seconds=2, clock=clock)
    before = breaker.begin()
    for _ in range(3):
        fail(breaker)
    clock.now = 1
    breaker.failed(before)
    assert breaker.refuses_for == 1
    clock.now = 2
    probe(breaker)
    breaker.failed(before)
    breaker.undecided(before)
    assert breaker.refuses_for == PROBE_WAIT_S


def test_one_probe_at_a_time() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 2
    probe(breaker)
    assert not admits(breaker)
    assert breaker.refuses_for > 0


def test_probe_decides() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 2
    breaker.failed(probe(breaker))
    assert breaker.refuses_for == 4
    clock.now = 6
    breaker.undecided(probe(breaker))
    probe(breaker)
    breaker.succeeded()
    assert admits(breaker)
    assert admits(breaker)


def test_retry_of_an_old_call_may_be_the_probe() -> None:
    clock = Clock()
    breaker = Breaker(failures=1, open_seconds=2, clock=clock)
    old = breaker.begin()
    breaker.failed(old)
    clock.now = 2
    assert breaker.admit(old)
    breaker.failed(old)
    assert breaker.refuses_for == 4


def test_opening_doubles_while_probes_fail_and_starts_short_again() -> None:
    clock = Clock()
    breaker = opened(clock)
    waits = []
    for _ in range(6):
        waits.append(breaker.refuses_for)
        clock.now += breaker.refuses_for
        breaker.failed(probe(breaker))
    assert waits == [2, 4, 8, 16, 30, 30]
    clock.now += 30
    probe(breaker)
    breaker.succeeded()
    for _ in range(3):
        fail(breaker)
    assert breaker.refuses_for == 2


def test_closed_breaker_needs_the_whole_row_again() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 2
    probe(breaker)
    breaker.succeeded()
    fail(breaker)
    assert admits(breaker)


def test_budget_pays_for_a_share_of_the_calls() -> None:
    budget = RetryBudget(share=0.1, capacity=2)
    assert [budget.spend() for _ in range(3)] == [True, True, False]
    for _ in range(11):
        budget.earn()
    assert [budget.spend() for _ in range(2)] == [True, False]


def test_budget_saves_no_more_than_its_capacity() -> None:
    budget = RetryBudget(share=0.5, capacity=2)
    for _ in range(100):
        budget.earn()
    assert [budget.spend() for _ in range(3)] == [True, True, False]
