"""How answers are compared, and what the list of differences allows."""

import pytest

from compare import differences, normalised
from listed import HEAD, listed
from test_differential import Seen

PAGE = f"{HEAD}\n| --- | --- | --- | --- | --- | --- |\n| a | `one; two [*` | `end` | `3501` | `null` | because |\n"


def test_a_row_stands_for_each_of_its_cases():
    assert [row.cases for row in listed(PAGE)] == ["one", "two [*"]


def test_a_row_without_a_reason_is_refused():
    with pytest.raises(ValueError):
        listed(PAGE.replace("because", ""))


def test_what_is_not_listed_fails():
    seen = Seen(listed(PAGE))
    seen.judge("two [json]", {"end": 3501}, {"end": None})
    for case, ours in (("three", None), ("one", 3500)):
        with pytest.raises(AssertionError):
            seen.judge(case, {"end": 3501}, {"end": ours})
    assert [row.cases for row in seen.rows if row not in seen.shown] == ["one"]


def test_what_servers_make_up_is_compared_by_being_there():
    def told(one, other):
        return list(differences(normalised(one), normalised(other)))

    assert told({"epoch": "abc"}, {"epoch": "def"}) == []
    assert told({"epoch": "abc"}, {"epoch": ""}) == [("epoch", '"<epoch>"', '""')]
    assert told({"offset": 1}, {"offset": True}) == [("offset", "1", "true")]
    assert told({"a": [1, 2]}, {"a": [1, 3]}) == [("a.1", "2", "3")]
    assert told({"a": None}, {}) == [("a", "null", "nothing")]
