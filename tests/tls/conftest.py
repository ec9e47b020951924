"""The real binary with a TLS listener, once for each driver, and certificates of our own."""

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from certificates import Authority
from server import Server, until

# Gauges of connections and their memory, and their values on a server without clients.
GAUGES = {
    'myriad_tls_connections{version="1.3"}': 0,
    'myriad_tls_connections{version="1.2"}': 0,
    "myriad_tls_handshakes_under_way": 0,
    "myriad_tls_handshakes_signing": 0,
    "myriad_tls_handshakes_waiting": 0,
    "myriad_connections": 0,
    "myriad_buffered_bytes": 0,
    # The one that asks.
    "myriad_api_connections": 1,
}
FAILED = "myriad_tls_handshakes_failed_total"
BROKEN = "myriad_tls_broken_total"


class Endpoint:
    """A server, and the port at which it speaks TLS."""

    def __init__(self, server):
        self.server = server
        self.port = int(server.secure.rpartition(":")[2])
        self.quiet()
        self.descriptors = self.count_descriptors()

    def figures(self):
        lines = self.server.request("GET", "/metrics").body.splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[:1] != "#")}

    def failures(self):
        """Failed handshakes by their reason."""
        found = {re.search(r'reason="(\w+)"', name): value for name, value in self.figures().items() if name.startswith(FAILED)}
        return Counter({reason[1]: int(value) for reason, value in found.items()})

    def broken(self):
        """Connections that broke a rule behind their handshake, in the shards."""
        return self.figures()[BROKEN]

    def count_descriptors(self):
        return len(os.listdir(f"/proc/{self.server.process.pid}/fd"))

    def memory(self):
        """Bytes of memory that no file stands behind."""
        status = Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) * 1024

    def quiet(self):
        """Returns once nothing is left of any client."""
        seen = {}

        def is_quiet():
            figures = self.figures()
            seen.update((name, figures[name]) for name in GAUGES)
            return seen == GAUGES

        try:
            until("no connection is left", is_quiet)
        except AssertionError as never:
            raise AssertionError(f"{never}: {seen}") from None

    def check_nothing_is_left(self):
        self.quiet()
        until("all descriptors are closed", lambda: self.count_descriptors() <= self.descriptors)


def start(driver, authority, *flags, patience="10s"):
    """A server with a certificate of ours."""
    own = ("--tls-certificate", authority.server_chain, "--tls-key", authority.server_key)
    return Endpoint(Server.start_with(driver, "--handshake-timeout", patience, *own, *flags))


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session", params=["io_uring", "epoll"])
def driver(request):
    return request.param


@pytest.fixture(scope="session")
def shared(driver, authority):
    """A server for all tests that leave it as it was."""
    endpoint = start(driver, authority)
    yield endpoint
    assert endpoint.server.stop() == 0


@pytest.fixture(scope="session")
def shared_mutual(driver, authority):
    """The same, which wants certificates of clients."""
    endpoint = start(driver, authority, "--tls-client-ca", authority.path)
    yield endpoint
    assert endpoint.server.stop() == 0


@pytest.fixture
def endpoint(shared):
    yield shared
    shared.check_nothing_is_left()


@pytest.fixture
def mutual(shared_mutual):
    yield shared_mutual
    shared_mutual.check_nothing_is_left()


@pytest.fixture
def own(driver, authority):
    """As `endpoint`, but used by one test alone. The log has one line a second for each reason, so another test could take it."""
    endpoint = start(driver, authority)
    yield endpoint
    endpoint.check_nothing_is_left()
    assert endpoint.server.stop() == 0


@pytest.fixture
def own_mutual(driver, authority):
    """As `mutual`, but used by one test alone, as `own` is."""
    endpoint = start(driver, authority, "--tls-client-ca", authority.path)
    yield endpoint
    endpoint.check_nothing_is_left()
    assert endpoint.server.stop() == 0


@pytest.fixture
def impatient(driver, authority):
    """A server that gives up on clients soon."""
    endpoint = start(driver, authority, patience="300ms")
    yield endpoint
    endpoint.check_nothing_is_left()
    assert endpoint.server.stop() == 0
