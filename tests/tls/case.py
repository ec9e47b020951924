"""A case: what a client does, and how the server has to end the connection."""

from dataclasses import dataclass

# The server ends the connection and sends no alert: nobody is left to read one, or the peer has ended it.
NO_ALERT = None


@dataclass(frozen=True)
class Case:
    """`alert` is a name, NO_ALERT, or several where `section`, of RFC 8446 unless it says another, leaves a choice."""

    name: str
    alert: object
    section: str
    play: object
    # What the metric of failed handshakes counts it as.
    reason: str = "protocol"
    # Whether the server may break off: the peer has said that it reads no more.
    may_reset: bool = False

    def __str__(self):
        return self.name

    def check(self, ending, deviations=None):
        """`deviations` are what the library does instead, by names of cases."""
        expected = (deviations or {}).get(self.name, (self.alert,))[0]
        allowed = expected if isinstance(expected, tuple) else (expected,)
        assert ending.alert in allowed, f"{self.name} ({self.section}): {ending}, not {expected}"
        assert self.may_reset or not ending.is_reset, f"{self.name}: broken off, so that what was said may be lost: {ending}"
        assert not ending.rest, f"{self.name}: part of a record came: {ending}"


def ids(cases):
    """For pytest.mark.parametrize."""
    return {"argvalues": cases, "ids": [str(each).replace(" ", "-") for each in cases]}


def check_failure(endpoint, case, client, deviations=None):
    """Plays a case that ends a handshake, and checks that it counts, once."""
    before = endpoint.failures()
    with client:
        case.play(client)
        case.check(client.ending(), deviations)
    failed = endpoint.failures() - before
    assert dict(failed) == {case.reason: 1}, f"{case.name}: {failed}"
