"""The checker finds what is wrong, so that its silence means something."""

import pytest
from ledger import Ledger


@pytest.fixture
def ledger():
    ledger = Ledger()
    for number in (1, 2, 3):
        ledger.note_sent(number, "a")
        ledger.note_acknowledged(number, ("e", 10 + number))
    return ledger


def listener(ledger, at=10):
    subscription = ledger.subscription("s", "a")
    ledger.note_begin(subscription, "e", at, "first")
    return subscription


def test_what_came_whole_is_no_fault(ledger):
    subscription = listener(ledger)
    for number in (1, 2, 3):
        ledger.note_received(subscription, number, 10 + number)
    assert ledger.judge() == []


def test_a_missing_one_is_named(ledger):
    subscription = listener(ledger)
    for number in (1, 3):
        ledger.note_received(subscription, number, 10 + number)
    assert ledger.judge() == ["s, channel a: publication 2 at 12 never came"]


def test_a_missing_last_one_is_named(ledger):
    subscription = listener(ledger)
    for number in (1, 2):
        ledger.note_received(subscription, number, 10 + number)
    assert ledger.judge() == ["s, channel a: publication 3 at 13 never came"]


def test_what_came_before_a_subscriber_is_not_missing(ledger):
    subscription = listener(ledger, at=12)
    ledger.note_received(subscription, 3, 13)
    assert ledger.judge() == []


def test_a_loss_that_is_told_is_no_fault(ledger):
    subscription = listener(ledger)
    ledger.note_received(subscription, 1, 11)
    ledger.note_begin(subscription, "e", 12, "recovered: false")
    ledger.note_received(subscription, 3, 13)
    assert ledger.judge() == []


def test_again_after_a_loss_is_no_fault_at_the_same_place(ledger):
    subscription = listener(ledger)
    ledger.note_received(subscription, 1, 11)
    ledger.note_received(subscription, 2, 12)
    ledger.note_begin(subscription, "e", 11, "recovered: false")
    ledger.note_received(subscription, 2, 12)
    ledger.note_received(subscription, 3, 13)
    assert ledger.judge() == []
    ledger.note_begin(subscription, "e", 11, "recovered: false")
    ledger.note_received(subscription, 2, 13)
    assert ledger.judge()[0] == "s, channel a: publication 2 came twice, at ('e', 12) and 13"


def test_twice_and_out_of_order_are_named(ledger):
    subscription = listener(ledger)
    for number in (1, 3, 2):
        ledger.note_received(subscription, number, 10 + number)
    assert ledger.judge() == ["s, channel a: offset 12 came after 13"]
    ledger.note_received(subscription, 3, 14)
    assert "publication 3 came twice, at ('e', 13) and 14" in ledger.judge()[1]


def test_two_places_of_one_publication_are_named(ledger):
    subscription = listener(ledger)
    for number, offset in ((1, 11), (2, 13), (3, 14)):
        ledger.note_received(subscription, number, offset)
    assert ledger.judge()[0] == "publication 2 is at ('e', 12) and, for s (which began at e 10), at ('e', 13)"


def test_what_was_not_acknowledged_may_come_once(ledger):
    subscription = listener(ledger)
    ledger.note_sent(4, "a")
    for number in (1, 2, 3, 4):
        ledger.note_received(subscription, number, 10 + number)
    assert ledger.judge() == []


def reader(ledger, *numbers):
    reading = ledger.reading("r", "a")
    reading.begin()
    for number in numbers:
        ledger.note_read(reading, number)
    return reading


def test_what_was_read_whole_is_no_fault(ledger):
    reader(ledger, 1, 2, 3)
    reader(ledger, 2, 3)
    reader(ledger)
    assert ledger.judge() == []


def test_what_was_not_read_is_named(ledger):
    reader(ledger, 1, 3)
    assert ledger.judge() == ["r, channel a: publication 2 at ('e', 12) was never read"]


def test_what_was_read_twice_is_named(ledger):
    reader(ledger, 1, 2, 2, 3)
    assert ledger.judge()[0] == "r, channel a: publication 2 was read twice"


def test_what_was_read_in_another_order_is_named(ledger):
    reader(ledger, 1, 3, 2)
    assert ledger.judge() == ["r, channel a: ('e', 12) was read after ('e', 13)"]


def test_a_loss_that_a_reader_is_told_is_no_fault(ledger):
    reading = reader(ledger, 1)
    reading.begin()
    ledger.note_read(reading, 3)
    assert ledger.judge() == []
