import nats
import pytest


@pytest.fixture(scope="session")
def program():
    """The path of nats-server."""
    found = nats.program()
    if found is None:
        pytest.skip("nats-server is built with Go, which is not installed")
    return found
