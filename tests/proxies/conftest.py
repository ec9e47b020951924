"""Each test runs with nginx and with HAProxy, whichever is installed."""

import pytest

from proxy import KINDS, Proxy, find
from server import Server


@pytest.fixture(params=sorted(KINDS))
def kind(request):
    if not find(request.param):
        pytest.skip(f"{request.param} is not installed")
    return KINDS[request.param]


@pytest.fixture
def serve():
    """Starts servers as deploy/ expects them: anonymous clients, an API with a key. All are stopped at the end."""
    running = []

    def start(*flags):
        running.append(Server.start("--anonymous", *flags, dev=False))
        return running[-1]

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def front(kind, tmp_path):
    """Starts the proxy in front of servers. Stopped at the end."""
    running = []

    def start(*backends, **settings):
        addresses = [backend if isinstance(backend, str) else f"{backend.host}:{backend.port}" for backend in backends]
        running.append(Proxy(kind, addresses, tmp_path, **settings))
        return running[-1]

    yield start
    for proxy in running:
        proxy.stop()
