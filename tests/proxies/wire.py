"""What stands between the tests and the proxy, and between the proxy and the server."""

import contextlib
import http.client
import re
import socket
import threading

from server import PATIENCE

# Behind a body there is no line feed.
REQUEST = re.compile(rb"((?:GET|HEAD|PUT|POST) /\S*) HTTP/1\.1\r\n")


class Wire:
    """A way to the server that notes which requests came on which of the proxy's connections."""

    def __init__(self, server):
        self.host = "127.0.0.1"
        self.target = (server.host, server.port)
        self.connections = []
        self.listener = socket.create_server((self.host, 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(self.target)
                sent = bytearray()
                self.connections.append(sent)
                for source, target, noted in ((client, server, sent), (server, client, None)):
                    threading.Thread(target=self._pass, args=(source, target, noted), daemon=True).start()

    @staticmethod
    def _pass(source, target, noted):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if noted is not None:
                    noted += data
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def requests(self):
        """The request lines of each connection, without those that ask for health."""
        found = [[line.decode() for line in REQUEST.findall(bytes(sent))] for sent in list(self.connections)]
        found = [[line for line in lines if "/healthz" not in line] for lines in found]
        return [lines for lines in found if lines]

    def stop(self):
        # A blocked accept ends by this, and not by a close.
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class Held:
    """One connection of a client of HTTP, whose answers may go on."""

    def __init__(self, proxy, address="127.0.0.1"):
        self.socket = socket.create_connection((proxy.host, proxy.port), PATIENCE, (address, 0))
        self.response = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # A response that is not read to its end would keep the socket open behind a close.
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def send(self, method, path, body="", headers=()):
        """Sends a request; nothing more of the last response is read."""
        lines = [f"{method} {path} HTTP/1.1", "Host: here", *headers]
        if method not in ("GET", "HEAD"):
            lines.append(f"Content-Length: {len(body)}")
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n" + body).encode())
        self.response = None

    def begin(self):
        """Reads the head of the answer. The rest is for `line`, or for `rest`."""
        self.response = http.client.HTTPResponse(self.socket)
        self.response.begin()
        return self.response

    def line(self):
        """The next line of a response that goes on. Fails if the response ends, or if a proxy holds the line back."""
        line = self.response.readline()
        assert line.endswith(b"\n"), "the response has ended"
        return line.decode().rstrip("\r\n")

    def line_with(self, text):
        """The next line that has this text."""
        while text not in (line := self.line()):
            pass
        return line

    def ask(self, *request, **options):
        """Sends a request and reads its answer: the response and its body."""
        self.send(*request, **options)
        response = self.begin()
        return response, response.read().decode()
