"""One server for all tests: each only reads of it."""

import pytest

from catalogue import documented, shown, together
from running import busy_server


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with busy_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="session")
def known(server):
    """All metrics, from docs/metrics.md and from a page of this server."""
    # From the second reading on, the page counts the first one.
    server.request("GET", "/healthz")
    server.request("GET", "/metrics")
    return together(documented(), shown(server.request("GET", "/metrics").body))
