"""The example application, in each of its languages, asked by the server about its clients."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from server import PATIENCE, ROOT, until

FOLDER = ROOT / "examples" / "application"
COMMANDS = {
    "python": [sys.executable, "application.py"],
    "node": ["node", "application.mjs"],
    "go": ["go", "run", "application.go"],
}
# How long connections and subscriptions last until the application is asked again.
# The applications tell whole seconds, so that one of three may be over when their answer is read.
SECONDS = 3


@pytest.fixture(params=list(COMMANDS))
def application(request, tmp_path):
    """The application, and the program that runs it."""
    command = COMMANDS[request.param]
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    if request.param == "go":
        # `go run` would leave the program behind when it is ended.
        built = tmp_path / "application"
        subprocess.run(["go", "build", "-o", built, "application.go"], cwd=FOLDER, check=True)
        command = [str(built)]
    process = subprocess.Popen(
        [*command, "0", str(SECONDS)], cwd=FOLDER, stdout=subprocess.PIPE, text=True
    )
    try:
        yield re.fullmatch(r"listening on (\S+)\n", process.stdout.readline())[1], process
    finally:
        process.kill()
        process.wait(PATIENCE)


class Client:
    """Speaks JSON, and notes pushes apart from replies."""

    def __init__(self, server):
        url = f"ws://{server.host}:{server.port}/connection/websocket"
        self.socket = connect(url, proxy=None, legacy=True)
        self.log = server.log
        self.pushes = []
        self.last = 0

    def call(self, **command):
        """The reply to a command."""
        self.last += 1
        self.socket.send(json.dumps({"id": self.last, **command}))
        while True:
            reply = self.receive()
            if reply.get("id") == self.last:
                return reply

    def connect(self, name):
        reply = self.call(connect={"data": {"name": name}})
        assert "connect" in reply, (reply, self.log)
        return reply["connect"]

    def receive(self):
        # One message a frame may be several lines.
        text = self.socket.recv(PATIENCE)
        lines = [json.loads(line) for line in text.split("\n")]
        if {} in lines:
            self.socket.send("{}")
        self.pushes += [line["push"] for line in lines if "push" in line]
        replies = [line for line in lines if "id" in line]
        return replies[0] if replies else {}

    def push(self, kind):
        """The next push of a kind."""
        while True:
            for push in self.pushes:
                if kind in push:
                    self.pushes.remove(push)
                    return push
            self.receive()


@pytest.fixture
def server(serve, application, tmp_path):
    address, _ = application
    config = tmp_path / "myriad.toml"
    text = (FOLDER / "myriad.toml").read_text()
    assert "127.0.0.1:3000" in text
    # The longest time that there is: these machines do much else.
    text = re.sub("(endpoint = .*)", r'\1\ntimeout = "4s"', text)
    config.write_text(text.replace("127.0.0.1:3000", address))
    return serve("--config", str(config), dev=False)


def calls(server, proxy, outcome="result"):
    return server.metric(f'myriad_proxy_calls_total{{proxy="{proxy}",outcome="{outcome}"}}')


def test_the_application_decides_about_everything(server):
    client = Client(server)
    connected = client.connect("bob")
    assert connected["data"] == {"hello": "bob"} and list(connected["subs"]) == ["news"]
    # The server refreshes: the client is told of no expiry.
    assert "expires" not in connected

    assert client.call(subscribe={"channel": "chat:lobby"})["subscribe"]["recoverable"]
    refused = client.call(subscribe={"channel": "chat:staff"})
    assert refused["error"] == {"code": 403, "message": "for staff only"}

    assert client.call(publish={"channel": "chat:lobby", "data": {"text": "hi"}})["publish"] == {}
    published = client.push("pub")["pub"]
    assert published["data"] == {"text": "hi", "from": "bob"}
    assert published["info"]["user"] == "bob" and published["info"]["chan_info"] == {"name": "bob"}

    answer = client.call(rpc={"method": "time"})["rpc"]["data"]
    assert answer["you"] == "bob" and answer["time"] > 1_700_000_000
    assert client.call(rpc={"method": "other"})["error"]["code"] == 404
    assert client.call(rpc={"method": "other:time"})["error"]["code"] == 104


def test_a_client_without_a_name_is_sent_away(server):
    client = Client(server)
    with pytest.raises(ConnectionClosed) as closed:
        client.call(connect={})
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4501, "say your name")
    assert calls(server, "client.proxy.connect", "disconnect") == 1


def test_what_expires_goes_on_while_the_application_says_so(server):
    client = Client(server)
    client.connect("ada")
    client.call(subscribe={"channel": "chat:staff"})
    for proxy in ["client.proxy.refresh", "channel.proxy.sub_refresh"]:
        until(f"{proxy} is asked twice", lambda proxy=proxy: calls(server, proxy) >= 2)
    assert client.call(publish={"channel": "chat:staff", "data": {"text": "still here"}})["publish"] == {}


def test_without_the_application_clients_stay_and_new_ones_try_again(server, application):
    client = Client(server)
    client.connect("ada")
    client.call(subscribe={"channel": "chat:lobby"})
    _, process = application
    process.kill()
    process.wait(PATIENCE)

    for refused in [
        client.call(rpc={"method": "time"}),
        Client(server).call(connect={"data": {"name": "bob"}}),
    ]:
        assert refused["error"]["code"] == 100 and refused["error"]["temporary"]
    assert server.key
    headers = {"X-API-Key": server.key}
    body = json.dumps({"channel": "chat:lobby", "data": {"text": "all is well"}})
    assert server.request("POST", "/api/publish", body, headers).status == 200
    assert client.push("pub")["pub"]["data"] == {"text": "all is well"}
    # Its expiry has come meanwhile, and nobody could say that it is over.
    until("the refresh failed", lambda: calls(server, "client.proxy.refresh", "unreachable") >= 1)
    assert client.call(presence={"channel": "chat:lobby"})["presence"]["presence"]
