"""The real binary as a fixture, once for each driver."""

import pytest

from server import DriverUnavailable, Server


@pytest.fixture(params=["io_uring", "epoll"])
def driver(request):
    return request.param


@pytest.fixture
def serve(driver):
    """Starts development servers of this driver; flags as on the command line. All are stopped at the end."""
    running = []

    def start(*flags, **settings):
        try:
            server = Server.start("--driver", driver, *flags, **settings)
        except DriverUnavailable as reason:
            if driver == "epoll":
                raise
            pytest.skip(str(reason))
        running.append(server)
        return server

    yield start
    for server in running:
        server.stop()
