"""Runs of the scenario files: the whole way of an IM system, and requests with their replies."""

from dataclasses import dataclass

from course import until_over

SECONDS = 30

# As scenarios/servers/im.toml has them, but for the delay.
NAMESPACE = """\
[[channel.namespaces]]
name = "im"
presence = true
history_size = 20
history_ttl = "5m"
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
allow_publish_for_subscriber = true
allow_publish_for_anonymous = true
publication_data_format = "json"
batch_delay = "{}"
"""


@dataclass(frozen=True)
class Load:
    """Group chat over WebSocket, and a few requests beside it."""

    groups: int
    messages_per_s: int
    batch_delay: str
    deliveries_per_s: int


# How many clients each is for is in `scenarios.py`: groups are of 227.
IM_LOADS = {
    "im-200k-1000": Load(880, 1_000, "500ms", 225_000),
    "im-20k-2200": Load(88, 2_200, "100ms", 500_000),
    "im-200k-2200": Load(880, 2_200, "1s", 500_000),
    "im-1m": Load(4_400, 150, "1s", 33_000),
}


def im_full_link(bench, name, kind, connections):
    """Group chat at the rate of the scenario's name."""
    load = IM_LOADS[name.split(".")[0]]

    def crowd_options(_, ports):
        variables = {
            "server": f"127.0.0.1:{ports[0]}", "connections": connections, "groups": load.groups,
            "ws-rate": f"{load.messages_per_s}/s", "http-rate": "10/s", "question-rate": "10/s",
        }
        settings = [word for key, value in variables.items() for word in ("--set", f"variables.{key}={value}")]
        return [*settings, "--duration", f"{SECONDS}s"]

    config = NAMESPACE.format(load.batch_delay)
    # Right before the run, because other load on the machine or its host changes within minutes.
    plain = {"plain_echoes_per_s": bench.plain_echoes_per_s(connections)}
    return plain | bench.run(
        name, kind, connections, "60s", crowd_options, until_over, "scenarios/im-full-link.toml", config, watches_server=True
    )


def requests(bench, name, kind, connections):
    """Messages that the server sends back, 200,000 a second."""

    def crowd_options(_, ports):
        settings = ["--set", f"variables.server=127.0.0.1:{ports[0]}", "--set", f"variables.connections={connections}"]
        return [*settings, "--duration", f"{SECONDS}s"]

    plain = {"plain_echoes_per_s": bench.plain_echoes_per_s(connections)}
    return plain | bench.run(name, kind, connections, "0", crowd_options, until_over, "scenarios/requests.toml")
