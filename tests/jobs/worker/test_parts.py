"""The small parts of a worker, each by itself."""

from __future__ import annotations

import threading
import time

import pytest

from bunderstack_django.jobs import states
from bunderstack_django.jobs.execute import Outcome, Run
from bunderstack_django.jobs.store.rows import Claimed
from bunderstack_django.jobs.worker.contact import Contact
from bunderstack_django.jobs.worker.holdings import Holdings
from bunderstack_django.jobs.worker.inbox import Inbox
from bunderstack_django.jobs.worker.outbox import MOST, WINDOW, Outbox
from bunderstack_django.jobs.worker.pace import MOST_AHEAD, Pace, batch_size
from bunderstack_django.runtime.service import Service, ServiceClosed, ServiceStatus
from bunderstack_django.runtime.stopping import Stop, Wake


class Clock:
    """Stands in for the monotonic clock of one module."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    from bunderstack_django.jobs import execute
    from bunderstack_django.jobs.worker import contact, outbox

    fake = Clock()
    for module in (contact, outbox, execute):
        monkeypatch.setattr(module, "time", fake)
    return fake


def a_run(key: str = "1", token: str = "t") -> Run:
    values = dict.fromkeys(Claimed._fields)
    return Run(Claimed(**{**values, "id": key, "lease_token": token, "attempts": 1, "crashes": 0}))


def an_outcome(key: str = "1") -> Outcome:
    return Outcome(a_run(key), states.SUCCEEDED)


def test_nothing_is_claimed_ahead_while_durations_are_unknown():
    pace = Pace()
    for _ in range(3):
        pace.add(0.001)
    assert pace.ahead(4) == 0

    pace.add(0.001)
    assert pace.ahead(4) == 200  # 4 threads × 50 ms at 1 ms each


def test_nothing_is_claimed_ahead_of_long_jobs():
    pace = Pace()
    for _ in range(100):
        pace.add(0.2)

    assert pace.ahead(4) == 0


def test_claiming_ahead_follows_the_recent_jobs_and_is_bounded():
    pace = Pace()
    for _ in range(100):
        pace.add(5.0)
    for _ in range(64):
        pace.add(0.000_001)

    assert pace.ahead(1) == MOST_AHEAD


@pytest.mark.parametrize(("wanted", "size"), [(-1, 0), (0, 0), (1, 1), (9, 8), (499, 350), (10**6, 1000)])
def test_a_batch_has_one_of_a_few_sizes(wanted, size):
    assert batch_size(wanted) == size


def test_a_lone_outcome_is_due_at_once(clock):
    news: list[int] = []
    outbox = Outbox(lambda: news.append(1))
    assert outbox.due_in() is None

    outbox.put(an_outcome())
    assert (outbox.due_in(), news) == (0.0, [1])


def test_an_outcome_soon_after_a_write_waits_for_others(clock):
    outbox = Outbox(lambda: None)
    outbox.put(an_outcome())
    outbox.take()
    clock.now += 0.02
    outbox.put(an_outcome())
    assert outbox.due_in() == pytest.approx(WINDOW - 0.02)

    clock.now += 0.04
    assert outbox.due_in() == 0.0


def test_a_full_batch_and_an_urgent_outcome_are_due_at_once(clock):
    outbox = Outbox(lambda: None)
    outbox.take()
    for number in range(MOST):
        outbox.put(an_outcome(str(number)))
    assert outbox.due_in() == 0.0
    assert len(outbox.take()) == MOST

    outbox.put(an_outcome(), urgent=True)
    assert outbox.due_in() == 0.0


def test_outcomes_whose_write_failed_come_first_again(clock):
    outbox = Outbox(lambda: None)
    first, second = an_outcome("1"), an_outcome("2")
    outbox.put(first)
    failed = outbox.take()
    outbox.put(second)
    outbox.put_back(failed)

    assert outbox.take() == [first, second]


def test_the_inbox_hands_out_in_order_and_tells_when_it_runs_low():
    low: list[int] = []
    inbox = Inbox(lambda: low.append(1))
    inbox.low_water = 1
    runs = [a_run(str(number)) for number in range(3)]
    inbox.put(runs)

    assert [inbox.get(), inbox.get()] == runs[:2]
    assert low == [1]
    inbox.close()
    assert inbox.get() is runs[2]
    assert inbox.get() is None


def test_what_waited_too_long_is_taken_out(clock):
    inbox = Inbox(lambda: None)
    old = a_run("old")
    clock.now += 2
    new = a_run("new")
    inbox.put([old, new])

    assert inbox.take_stale(clock.now - 1) == [old]
    assert inbox.take_all() == [new]
    assert len(inbox) == 0


def test_holdings_forget_a_run_only_if_it_is_the_same_claim():
    holdings = Holdings()
    old, new = a_run("1", "old"), a_run("1", "new")
    holdings.add([old])
    holdings.add([new])
    holdings.remove([old])

    assert holdings.snapshot() == [new]
    assert holdings.has_claim("1", "new")
    assert not holdings.has_claim("1", "old")


def test_contact_is_trusted_after_an_interval_without_a_break(clock):
    contact = Contact(interval=10)
    contact.made()
    assert not contact.is_trusted
    clock.now += 10
    contact.made()
    assert contact.is_trusted

    contact.broken()
    contact.made()
    assert not contact.is_trusted


def test_a_long_silence_is_a_break(clock):
    contact = Contact(interval=10)
    contact.made()
    clock.now += 10
    contact.made()
    clock.now += 21
    assert not contact.is_trusted
    contact.made()
    assert not contact.is_trusted


def test_a_wake_set_before_the_wait_is_not_missed():
    wake = Wake()
    wake.set()
    wake.set()
    began = time.monotonic()
    wake.wait(30)

    assert time.monotonic() - began < 5
    wake.wait(0)


def test_a_wake_from_another_thread_ends_the_wait():
    wake = Wake()
    thread = threading.Thread(target=wake.set)
    thread.start()
    began = time.monotonic()
    wake.wait(30)
    thread.join()

    assert time.monotonic() - began < 5


def test_the_second_request_to_stop_means_at_once():
    stop, told = Stop(), []
    stop.watch(lambda: told.append(1))
    stop.request()
    assert (bool(stop), stop.immediate) == (True, False)
    stop.request()
    assert (stop.immediate, told) == (True, [1, 1])


def test_a_service_closes_once_in_reverse_order_and_reports_every_error():
    service, done = Service(), []

    def fail() -> None:
        done.append("fail")
        raise ValueError

    service.add(lambda: done.append("first"))
    service.add(fail)
    service.add(fail)
    with pytest.raises(ExceptionGroup) as caught:
        service.close()
    service.close()

    assert done == ["fail", "fail", "first"]
    assert len(caught.value.exceptions) == 2
    assert service.status == ServiceStatus.CLOSED
    with pytest.raises(ServiceClosed):
        service.add(fail)
