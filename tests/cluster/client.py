"""A client of the Centrifuge protocol (JSON) that asks, and waits for each answer."""

import base64
import hashlib
import hmac
import json
from contextlib import ExitStack

from node import SECRET
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

SECONDS = 10


def token(**claims):
    """A token with these claims, signed with HMAC-SHA256."""

    def encoded(part):
        return base64.urlsafe_b64encode(part).rstrip(b"=")

    head = encoded(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
    signed = head + b"." + encoded(json.dumps(claims).encode())
    signature = hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()
    return (signed + b"." + encoded(signature)).decode()


class Refused(Exception):
    """The answer to a command is an error."""


class Client:
    """Connected to a node as a user, or as nobody."""

    def __init__(self, node, user="", **claims):
        self.stack = ExitStack()
        self.socket = self.stack.enter_context(connect(node.websocket(), ping_interval=None))
        self.last = 0
        self.pushes = []
        request = {"token": token(sub=user, **claims)} if user or claims else {}
        self.id = self.ask("connect", request)["client"]

    def ask(self, command, request):
        self.last += 1
        self.socket.send(json.dumps({"id": self.last, command: request}))
        while True:
            for reply in self.receive():
                if reply.get("id") == self.last:
                    if "error" in reply:
                        raise Refused(reply["error"])
                    return reply.get(command, {})

    def receive(self):
        """The replies of the next message. Pushes are kept, and pings answered."""
        replies = [json.loads(line) for line in self.socket.recv(timeout=SECONDS).splitlines()]
        if {} in replies:
            self.socket.send("{}")
        self.pushes += [reply["push"] for reply in replies if "push" in reply]
        return replies

    def wait_for_push(self, kind):
        """The first push of this kind that was not asked for yet."""
        while True:
            for push in self.pushes:
                if kind in push:
                    self.pushes.remove(push)
                    return push
            self.receive()

    def subscribe(self, channel):
        return self.ask("subscribe", {"channel": channel})

    def presence(self, channel):
        return self.ask("presence", {"channel": channel})["presence"]

    def closed(self):
        """Waits for the end of the connection. The code of the close frame."""
        while True:
            try:
                self.receive()
            except ConnectionClosed as closed:
                return closed.rcvd.code if closed.rcvd else None

    def close(self):
        self.stack.close()
