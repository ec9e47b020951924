"""Plays one case at one server, over one transport, and says what the client heard."""

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import time
import urllib.parse

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as open_websocket

import protobuf
from pair import KEY, PATIENCE_SECONDS, SECRET

# A command that both servers answer in any state of a connection that is there.
MARKER_ID = 4_000_000
ENDED = "ended"


def token(secret=SECRET, header=None, **claims):
    """A JWT; `exp` counts from now."""
    if "exp" in claims:
        claims["exp"] += int(time.time())
    parts = [header or {"alg": "HS256", "typ": "JWT"}, claims]
    text = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
    signature = base64.urlsafe_b64encode(hmac.new(secret.encode(), text, hashlib.sha256).digest()).rstrip(b"=")
    return (text + b"." + signature).decode()


class WebSocket:
    """/connection/websocket, in one of the encodings."""

    def __init__(self, server, encoding):
        self.encoding = encoding
        query = "?cf_protocol=protobuf" if encoding == "protobuf" else ""
        self.stack = contextlib.ExitStack()
        address = f"ws://{server.host}:{server.port}/connection/websocket{query}"
        self.socket = self.stack.enter_context(open_websocket(address, open_timeout=PATIENCE_SECONDS))

    def send(self, *commands):
        if self.encoding == "json":
            self.send_raw("\n".join(map(json.dumps, commands)))
        else:
            self.send_raw(protobuf.join(protobuf.encode(protobuf.COMMAND, command) for command in commands))

    def send_raw(self, frame):
        with contextlib.suppress(ConnectionClosed):
            self.socket.send(frame)

    def receive(self):
        """Some messages; ("ended", code) at the end."""
        try:
            frame = self.socket.recv(PATIENCE_SECONDS)
        except ConnectionClosed:
            return [(ENDED, self.socket.close_code)]
        if self.encoding == "json":
            return [json.loads(line) for line in frame.split("\n")]
        return [protobuf.decode(protobuf.REPLY, message) for message in protobuf.split(frame)]

    def close(self):
        self.stack.close()


class Response:
    """An answer of HTTP that goes on: lines, events, or messages after their lengths."""

    def __init__(self, server, method, path, body, form, headers=None):
        self.form = form
        self.connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE_SECONDS)
        self.connection.request(method, path, body, headers or {})
        self.answer = self.connection.getresponse()

    def receive(self, schema=protobuf.REPLY):
        if self.answer.status != 200:
            return [(ENDED, f"status {self.answer.status}")]
        try:
            message = self._length_delimited(schema) if self.form == "protobuf" else self._line()
        except (EOFError, http.client.IncompleteRead):
            return [(ENDED, "response")]
        return [message]

    def _line(self):
        while True:
            line = self.answer.readline()
            if not line:
                raise EOFError
            line = line.strip()
            if self.form == "sse":
                line = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
            if line:
                return json.loads(line)

    def _length_delimited(self, schema):
        size = shift = 0
        while True:
            byte = self.answer.read(1)
            if not byte:
                raise EOFError
            size |= (byte[0] & 127) << shift
            shift += 7
            if byte[0] < 128:
                return protobuf.decode(schema, self.answer.read(size))

    def close(self):
        self.answer.close()
        self.connection.close()


class Emulated:
    """/connection/http_stream or /connection/sse, whose commands come in requests of their own."""

    def __init__(self, server, transport, encoding):
        self.server, self.transport, self.encoding = server, transport, encoding
        self.response = None
        self.session = self.node = None
        self.statuses = []

    def send(self, *commands):
        if self.encoding == "json":
            self.send_raw("\n".join(map(json.dumps, commands)))
        else:
            self.send_raw(protobuf.join(protobuf.encode(protobuf.COMMAND, command) for command in commands))

    def send_raw(self, frame):
        headers = {"Content-Type": "application/octet-stream" if self.encoding == "protobuf" else "application/json"}
        if self.response is None:
            if self.transport == "sse":
                path = "/connection/sse?" + urllib.parse.urlencode({"cf_connect": frame})
                self.response = Response(self.server, "GET", path, None, "sse")
            else:
                self.response = Response(self.server, "POST", "/connection/http_stream", frame, self.encoding, headers)
            return
        if self.encoding == "json":
            body = json.dumps({"session": self.session, "node": self.node, "data": frame})
        else:
            body = protobuf.encode(protobuf.EMULATION, {"session": self.session, "node": self.node, "data": frame})
        status, _ = request(self.server, "POST", "/emulation", body, headers)
        if status != 204:
            self.statuses.append(status)

    def receive(self):
        messages = self.response.receive()
        for message in messages:
            if isinstance(message, dict) and "connect" in message:
                self.session, self.node = message["connect"].get("session"), message["connect"].get("node")
        return messages

    def close(self):
        if self.response:
            self.response.close()


def request(server, method, path, body=None, headers=None):
    """The status and the body of an answer."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def call(server, method, body, key=KEY, headers=None):
    """An API method's answer: `body` is JSON, or text to send as it is."""
    text = body if isinstance(body, str) else json.dumps(body)
    with_key = {"X-API-Key": key} if key else {}
    status, answer = request(server, "POST", f"/api/{method}", text, {**with_key, **(headers or {})})
    # What a person reads in a refusal is not compared.
    return {"status": status, "body": json.loads(answer)} if status == 200 or headers else {"status": status}


class Play:
    """One client of one server, and what it has heard."""

    def __init__(self, server, names, open_client):
        self.server, self.names, self.open_client = server, names, open_client
        self.client = open_client(server)
        self.replies, self.pushes, self.calls = {}, [], []
        self.end = None
        self.next_id = 0
        self.epoch = ""

    def fill(self, value):
        """Puts this run's names into a case's value: `$c` ends channels, `$u` is the user, `$epoch` the epoch heard last."""
        if isinstance(value, dict):
            return {self.fill(key): self.fill(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.fill(one) for one in value]
        if callable(value):
            return value(self)
        if isinstance(value, str):
            return value.replace("$c", self.names).replace("$u", f"user-{self.names}").replace("$epoch", self.epoch)
        return value

    def step(self, step):
        if self.end is not None:
            return
        kind, *arguments = step
        getattr(self, kind)(*[self.fill(argument) for argument in arguments])

    def command(self, *commands):
        """Sends commands in one frame, and waits for all replies."""
        numbered = []
        for command in commands:
            self.next_id += 1
            numbered.append({"id": self.next_id, **command})
        self.client.send(*numbered)
        expected = {one["id"] for one in numbered}
        self.until(lambda: expected <= self.replies.keys())

    def unanswered(self, command):
        """Sends what has no reply, and in the same frame a command that has one, to see the connection's state."""
        self.marker(command)

    def raw(self, frame):
        self.client.send_raw(frame)
        self.marker()

    def first(self, frame):
        """Sends a frame that ends the connection, or is answered as command 1."""
        self.client.send_raw(frame)
        self.until(lambda: 1 in self.replies)

    def marker(self, *before):
        """Waits until what came before has been heard: frames over HTTP may overtake each other, and what is in one may not."""
        self.client.send(*before, {"id": MARKER_ID, "presence_stats": {"channel": "plain:marker"}})
        self.until(lambda: MARKER_ID in self.replies)
        self.replies.pop(MARKER_ID, None)

    def api(self, method, body):
        self.calls.append(call(self.server, method, body))

    def heard(self, count):
        """Waits for so many pushes in all."""
        self.until(lambda: len(self.pushes) >= count)

    def ends(self):
        self.until(lambda: False)

    def until(self, done):
        while self.end is None and not done():
            try:
                messages = self.client.receive()
            except TimeoutError:
                # An outcome as others: the other server may say something.
                self.end = "silence"
                return
            for message in messages:
                self.take(message)

    def take(self, message):
        if isinstance(message, tuple):
            self.end = message[1]
        elif "id" in message:
            number = message.pop("id")
            self.replies[number] = message
            self.note_epoch(message)
        elif message.get("push"):
            self.pushes.append(message["push"])
            if "disconnect" in message["push"]:
                self.end = message["push"]["disconnect"].get("code", 0)

    def note_epoch(self, message):
        for result in message.values():
            if isinstance(result, dict) and result.get("epoch"):
                self.epoch = result["epoch"]

    def outcome(self):
        said = {"replies": self.replies, "pushes": self.pushes, "calls": self.calls, "end": self.end}
        if getattr(self.client, "statuses", None):
            said["emulation"] = self.client.statuses
        return said


OPENERS = {
    "json": lambda server: WebSocket(server, "json"),
    "protobuf": lambda server: WebSocket(server, "protobuf"),
    "http_stream": lambda server: Emulated(server, "http_stream", "json"),
    "http_stream protobuf": lambda server: Emulated(server, "http_stream", "protobuf"),
    "sse": lambda server: Emulated(server, "sse", "json"),
}


def play(server, steps, transport, names):
    """What a client with commands heard of these steps."""
    client = Play(server, names, OPENERS[transport])
    try:
        for step in steps:
            client.step(step)
        if client.end is None and client.replies.get(1, {}).get("connect"):
            client.marker()
        return client.outcome()
    finally:
        client.client.close()


class UniWebSocket:
    """/connection/uni_websocket: bare pushes."""

    def __init__(self, server, connect):
        self.stack = contextlib.ExitStack()
        address = f"ws://{server.host}:{server.port}/connection/uni_websocket"
        self.socket = self.stack.enter_context(open_websocket(address, open_timeout=PATIENCE_SECONDS))
        self.socket.send(connect)

    def receive(self):
        try:
            return [json.loads(line) for line in self.socket.recv(PATIENCE_SECONDS).split("\n")]
        except ConnectionClosed:
            return [(ENDED, self.socket.close_code)]

    def close(self):
        self.stack.close()


def open_uni(server, transport, connect):
    if transport == "uni_websocket":
        return UniWebSocket(server, connect)
    if transport == "uni_sse":
        path = "/connection/uni_sse?" + urllib.parse.urlencode({"cf_connect": connect})
        return Response(server, "GET", path, None, "sse")
    return Response(server, "POST", "/connection/uni_http_stream", connect, "lines")


def play_uni(server, connect, steps, transport, names):
    """What a client without commands heard: `steps` are calls of the API, each with how many pushes it leads to."""
    filler = Play(server, names, lambda server: None)
    filled = filler.fill(connect)
    client = open_uni(server, transport, filled if isinstance(filled, str) else json.dumps(filled))
    said = {"pushes": [], "calls": [], "end": None}

    def hear(count):
        while said["end"] is None and len(said["pushes"]) < count:
            try:
                messages = client.receive()
            except TimeoutError:
                messages = [(ENDED, "silence")]
            for message in messages:
                if isinstance(message, tuple):
                    said["end"] = message[1]
                elif message:
                    said["pushes"].append(message)

    try:
        hear(1)
        for method, body, count in steps:
            if said["end"] is None:
                said["calls"].append(call(server, method, filler.fill(body)))
                hear(len(said["pushes"]) + count)
        if said["pushes"] and "disconnect" in said["pushes"][-1]:
            hear(len(said["pushes"]) + 1)
        return said
    finally:
        client.close()


def play_api(server, method, bodies, key, headers, names):
    """The answers to some calls, one after the other."""
    filler = Play(server, names, lambda server: None)
    return {"calls": [call(server, method, filler.fill(body), KEY if key is None else key, headers) for body in bodies]}
