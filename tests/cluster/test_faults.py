"""A small set of the faults, so that each run of the tests follows publications over some of them."""

from types import SimpleNamespace

import faults
import pytest


@pytest.mark.parametrize(
    ("fault", "servers", "interest"),
    [
        ("node-killed", 1, "mixed"),
        ("all-nats-killed", 1, "stream"),
        ("all-nats-killed", 1, "channel"),
        ("all-nats-killed", 1, "auto"),
        ("leader-killed", 3, "mixed"),
        ("old-copy", 1, "mixed"),
        ("routes-cut", 3, "stream"),
    ],
)
def test_nothing_acknowledged_is_lost(program, fault, servers, interest):
    options = SimpleNamespace(
        myriad=faults.MYRIAD, nats=program, nodes=3, servers=servers, seconds=4, interest=interest
    )
    assert faults.run_once(options, fault, seed=1)
