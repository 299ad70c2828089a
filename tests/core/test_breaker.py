"""The breaker and the retry budget, by a clock that is told."""

from rectifier_core.breaker import Breaker, RetryBudget


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def opened(clock: Clock) -> Breaker:
    breaker = Breaker(failures=3, open_seconds=30, clock=clock)
    for _ in range(3):
        assert breaker.admit()
        breaker.failed()
    return breaker


def test_success_between_failures_keeps_it_closed() -> None:
    breaker = Breaker(failures=3, clock=Clock())
    for _ in range(5):
        breaker.failed()
        breaker.failed()
        breaker.succeeded()
    assert breaker.admit()


def test_undecided_calls_do_not_break_a_row_of_failures() -> None:
    breaker = Breaker(failures=2, clock=Clock())
    breaker.failed()
    breaker.undecided()
    breaker.failed()
    assert not breaker.admit()


def test_open_breaker_says_how_long() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 10
    assert breaker.refuses_for == 20
    assert not breaker.admit()


def test_failures_of_calls_from_before_do_not_prolong_it() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 10
    breaker.failed()
    assert breaker.refuses_for == 20


def test_one_probe_at_a_time() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 30
    assert breaker.admit()
    assert not breaker.admit()
    assert breaker.refuses_for > 0


def test_probe_decides() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 30
    breaker.admit()
    breaker.failed()
    assert breaker.refuses_for == 30
    clock.now = 60
    breaker.admit()
    breaker.undecided()
    assert breaker.admit()
    breaker.succeeded()
    assert breaker.admit()
    assert breaker.admit()


def test_closed_breaker_needs_the_whole_row_again() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 30
    breaker.admit()
    breaker.succeeded()
    breaker.failed()
    assert breaker.admit()


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
