"""An authority, and servers that get their certificates there, once for each driver."""

import contextlib
import socket
import ssl

import pytest
import trustme
from websockets.sync.client import connect

import authority as authorities
from server import Server


@pytest.fixture(scope="session")
def programs():
    folder = authorities.programs()
    if folder is None:
        pytest.skip("pebble is built with Go, which is not installed")
    return folder


@pytest.fixture
def authority(programs, tmp_path):
    """One that is not started."""
    one = authorities.Authority(tmp_path, trustme.CA())
    yield one
    one.stop()


@pytest.fixture(params=["io_uring", "epoll"])
def driver(request):
    return request.param


@pytest.fixture
def serve(driver, authority):
    """Starts servers for push.example.com that ask the authority. All are stopped at the end."""
    running = []

    def start(*flags, names=("push.example.com",), port=authority.tls_port):
        acme = [word for name in names for word in ("--tls-acme", name)]
        cache = authority.folder / "lib" / "acme"
        server = Secured.start_with(
            driver, "--tls-listen", f"127.0.0.1:{port}", *acme, "--tls-acme-accept-terms",
            "--tls-acme-directory", authority.directory, "--tls-acme-ca", str(authority.ca),
            "--tls-acme-cache", str(cache), *flags,
        )
        server.authority, server.cache = authority, cache
        running.append(server)
        return server

    yield start
    for server in running:
        server.stop()


class Secured(Server):
    """A server with TLS."""

    def context(self, root):
        return ssl.create_default_context(cadata=root)

    def certificate(self, root, name="push.example.com"):
        """What a new client gets that asks for this name.

        ssl.SSLError: there is none, or the root has not signed it."""
        with socket.create_connection(("127.0.0.1", self.authority.tls_port), timeout=30) as plain:
            with self.context(root).wrap_socket(plain, server_hostname=name) as secured:
                return secured.getpeercert()

    def has_certificate(self, root, name="push.example.com"):
        with contextlib.suppress(ssl.SSLError):
            return self.certificate(root, name)
        return None

    def secure_client(self, root, path="/raw?channel=c", name="push.example.com"):
        """An open client of the `websockets` package over TLS."""
        plain = socket.create_connection(("127.0.0.1", self.authority.tls_port), timeout=30)
        # In development a server answers to no other host than this machine.
        client = connect(f"wss://localhost{path}", sock=plain, ssl=self.context(root), server_hostname=name)
        return self.clients.enter_context(client)

    def logged(self, text):
        return [line for line in self.log if text in line]
