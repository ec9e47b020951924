"""A small set of the faults, so that each run of the tests follows publications over some of them."""

from types import SimpleNamespace

import faults
import pytest


@pytest.mark.parametrize(
    ("fault", "servers"),
    [("node-killed", 1), ("all-nats-killed", 1), ("leader-killed", 3), ("old-copy", 1)],
)
def test_nothing_acknowledged_is_lost(program, fault, servers):
    options = SimpleNamespace(myriad=faults.MYRIAD, nats=program, nodes=3, servers=servers, seconds=4)
    assert faults.run_once(options, fault, seed=1)
