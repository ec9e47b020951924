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
    """Starts a pair of servers with a configuration, once."""
    program = pair.program()
    if program is None:
        pytest.skip("centrifugo is built with Go, which is not installed")
    running = {}

    def pair_of(strict):
        if strict not in running:
            folder = tmp_path_factory.mktemp("strict" if strict else "open")
            config = pair.settings(strict)
            original = pair.Original(program, folder, config)
            running[strict] = [original]
            running[strict].append(pair.start_myriad(folder, config))
        return running[strict]

    yield pair_of
    for servers in running.values():
        for server in servers:
            server.stop()
