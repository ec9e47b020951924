"""Both servers, each with the same configuration, once for all cases."""

import pytest

import listed
import pair
from test_differential import Seen


@pytest.fixture(scope="session")
def seen():
    return Seen(listed.listed())


@pytest.fixture(scope="session")
def start(tmp_path_factory):
    """Starts a pair of servers with one configuration, once: strict ones, open ones, or open ones that have no clients."""
    program = pair.program()
    if program is None:
        pytest.skip("centrifugo is built with Go, which is not installed")
    running = {}

    def pair_of(name):
        if name not in running:
            folder = tmp_path_factory.mktemp(name)
            config = pair.settings(name == "strict")
            running[name] = [pair.Original(program, folder, config)]
            running[name].append(pair.start_myriad(folder, config))
        return running[name]

    yield pair_of
    for servers in running.values():
        for server in servers:
            server.stop()
