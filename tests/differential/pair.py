"""The two servers, with one configuration: the original, which Go builds once, and Myriad."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request

import go_programs
import ports
from server import Server

PATIENCE_SECONDS = 30
SECRET, KEY = "a secret of the tests, 32 bytes long", "key-of-the-tests"
EVERYBODY = {"allow_subscribe_for_client": True, "allow_subscribe_for_anonymous": True}
PUBLISHERS = {"allow_publish_for_client": True, "allow_publish_for_anonymous": True}
READERS = {
    f"allow_{what}_for_{whom}": True for what in ("presence", "history") for whom in ("client", "anonymous")
}
HISTORY = {"history_size": 10, "history_ttl": "300s"}
NAMESPACES = {
    "open": {**EVERYBODY, **PUBLISHERS, **READERS, **HISTORY, "presence": True},
    "rec": {
        **EVERYBODY, **PUBLISHERS, **READERS, **HISTORY, "force_recovery": True, "allowed_delta_types": ["fossil"],
        "allow_tags_filter": True,
    },
    "small": {**EVERYBODY, **PUBLISHERS, **READERS, "history_size": 2, "history_ttl": "300s", "force_recovery": True},
    "pos": {**EVERYBODY, **PUBLISHERS, **HISTORY, "force_positioning": True},
    "wish": {**EVERYBODY, **PUBLISHERS, **HISTORY, "allow_positioning": True, "allow_recovery": True},
    "cache": {
        **EVERYBODY, **PUBLISHERS, **READERS, "history_size": 1, "history_ttl": "300s", "force_recovery": True,
        "force_recovery_mode": "cache",
    },
    "joins": {**EVERYBODY, **PUBLISHERS, **READERS, "presence": True, "join_leave": True, "force_push_join_leave": True},
    "plain": {**EVERYBODY, **PUBLISHERS},
    "users": {"allow_subscribe_for_client": True, "allow_publish_for_client": True, "presence": True, "allow_presence_for_client": True},
    "members": {
        **EVERYBODY, **HISTORY, "presence": True, "allow_publish_for_subscriber": True, "allow_presence_for_subscriber": True,
        "allow_history_for_subscriber": True,
    },
    "shut": {},
    "object": {**EVERYBODY, **PUBLISHERS, "publication_data_format": "json_object"},
    "anything": {**EVERYBODY, **PUBLISHERS, "publication_data_format": "binary"},
    "limited": {**EVERYBODY, "allow_user_limited_channels": True},
    "named": {**EVERYBODY, "channel_regex": "^[a-z]+$"},
}
TRANSPORTS = ("sse", "http_stream", "uni_websocket", "uni_sse", "uni_http_stream")


def settings(strict):
    """What both servers are told. A strict one wants a token of everybody, with a user."""
    client = {
        "token": {"hmac_secret_key": SECRET},
        "allowed_origins": ["http://good.example"],
        "ping_interval": "25s",
        "pong_timeout": "8s",
        "channel_limit": 5,
    }
    client["disallow_anonymous_connection_tokens" if strict else "allow_anonymous_connect_without_token"] = True
    return {
        "client": client,
        "channel": {
            "without_namespace": {**EVERYBODY, "allow_publish_for_subscriber": True},
            "namespaces": [{"name": name, **options} for name, options in NAMESPACES.items()],
        },
        "http_api": {"key": KEY},
        **{transport: {"enabled": True} for transport in TRANSPORTS},
    }


def program():
    """The path of the original, which Go builds once; None where there is no Go."""
    built = go_programs.build("centrifugo")
    return str(built / "centrifugo") if built else None


def toml(value):
    """A value in TOML, with tables inline."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


class Original:
    """Centrifugo in a process of its own."""

    def __init__(self, program, folder, config):
        self.host, self.port = "127.0.0.1", ports.reserve()
        file = folder / "centrifugo.json"
        file.write_text(json.dumps({**config, "http_server": {"address": self.host, "port": self.port}, "health": {"enabled": True}}))
        self.log = folder / "centrifugo.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen([program, "--config", str(file)], stdout=log, stderr=log)
        self.wait()

    def wait(self):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://{self.host}:{self.port}/health", timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        self.stop()
        sys.exit(f"centrifugo does not start: {self.log.read_text()}")

    def stop(self):
        self.process.kill()
        self.process.wait()


def start_myriad(folder, config):
    file = folder / "myriad.toml"
    file.write_text("".join(f"{name} = {toml(value)}\n" for name, value in config.items()))
    return Server.start("--config", str(file), dev=False)
