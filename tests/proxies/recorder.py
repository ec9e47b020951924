"""A server that writes down what a proxy forwards, request by request."""

import socket
import threading
from contextlib import suppress

from cases import headers_of, joined
from server import PATIENCE

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Recorder:
    """Each connection carries one request: the answer ends it, so that the proxy decides where the next one begins."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        self.received = []
        self.lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._record, args=(connection,), daemon=True).start()

    def _record(self, connection):
        with connection, suppress(OSError):
            connection.settimeout(PATIENCE)
            received = b""
            while not is_whole(received):
                piece = connection.recv(65_536)
                if not piece:
                    # A proxy that passes a body on as it comes gives up in the middle of it.
                    return
                received += piece
            if received.startswith(b"GET /healthz "):
                connection.sendall(ANSWER)
                return
            with self.lock:
                self.received.append(received)
            connection.sendall(ANSWER)
            # What comes now is neither this request nor another one that anybody waits for.
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65_536):
                with self.lock:
                    self.received.append(piece)

    def take(self):
        """What was forwarded since the last call, in the order in which it came."""
        with self.lock:
            taken, self.received = self.received, []
        return taken

    def stop(self):
        self.listener.close()


def is_whole(received):
    head, end, body = received.partition(b"\r\n\r\n")
    if not end:
        return False
    headers = dict(headers_of(head.decode("latin-1").split("\r\n")[1:]))
    if "transfer-encoding" in headers:
        try:
            _, trailers = joined(body)
        except ValueError:
            return False
        return trailers == b"\r\n" or trailers.endswith(b"\r\n\r\n")
    return len(body) >= int(headers.get("content-length", 0))
