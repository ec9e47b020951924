"""The real binary as a fixture, once for each driver."""

import pytest

from server import Server


@pytest.fixture(params=["io_uring", "epoll"])
def driver(request):
    return request.param


@pytest.fixture
def serve(driver):
    """Starts development servers of this driver; flags as on the command line. All are stopped at the end."""
    running = []

    def start(*flags, **settings):
        server = Server.start_with(driver, *flags, **settings)
        running.append(server)
        return server

    yield start
    for server in running:
        server.stop()
