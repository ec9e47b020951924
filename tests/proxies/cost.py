#!/usr/bin/env python3
"""Measures the memory that nginx and HAProxy take for each client that they hold, with the configs of deploy/.

    ../../target/tests-python/bin/python cost.py [--clients 5000] [--proxy nginx]

Prints a table for docs/proxies.md: proportional set size (PSS) of all processes of the proxy. What the kernel keeps for the two
sockets of each client is not in it.
"""

import argparse
import socket
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / "clients" / "python"), str(TESTS)]

from proxy import KINDS, Nginx, Proxy, find
from server import PATIENCE, UPGRADE, Server, receive_head, until

# Bytes by which the memory of a proxy at rest comes and goes.
NOISE = 64 << 10
STREAM = "/v1/stream/s"
CONFIG = """
poll-timeout = "10m"
[channel.without_namespace]
history_size = 10
history_ttl = "1h"
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
"""


def request(path, headers=""):
    return f"GET {path} HTTP/1.1\r\nHost: here\r\n{headers}\r\n".encode()


# What each client asks for, and the metric that counts those that are held.
HELD = {
    "long polls": (request(f"{STREAM}?live=long-poll&offset=now"), "myriad_parked_polls"),
    "streams of events": (request(f"{STREAM}?live=sse&offset=now"), "myriad_event_streams"),
    "WebSockets": (request("/raw?channel=c", UPGRADE), "myriad_upgrades_total"),
    "kept, idle": (request("/healthz"), None),
}


def processes(process):
    """It and its children, which have none of their own."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [str(process), *children]


def memory(proxy):
    """Bytes of PSS of the proxy's processes together."""
    total = 0
    for process in processes(proxy.process.pid):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def settled_memory(proxy):
    """The same, once it no longer changes: workers start after the port accepts."""
    last, now = 0, memory(proxy)
    while abs(now - last) > NOISE:
        time.sleep(0.5)
        last, now = now, memory(proxy)
    return now


def hold(server, proxy, wanted, count):
    """Bytes for each client while so many are held."""
    head, metric = wanted
    before = settled_memory(proxy)
    already = server.metric(metric) if metric else 0
    clients = []
    for _ in range(count):
        client = socket.create_connection((proxy.host, proxy.port), timeout=PATIENCE)
        client.sendall(head)
        clients.append(client)
        if "poll" not in head.decode():
            receive_head(client)
    if metric:
        until("all are held", lambda: server.metric(metric) >= already + count)
    after = settled_memory(proxy)
    for client in clients:
        client.close()
    until("all have gone", lambda: server.metric("myriad_connections") <= 100)
    return (after - before) / count


def measure(kind, count, directory):
    """A line of the table."""
    kind.clients = count
    file = directory / "myriad.toml"
    file.write_text(CONFIG)
    figures = []
    for wanted in HELD.values():
        server = Server.start("--anonymous", "--config", str(file), dev=False, connections=count + 1000)
        try:
            created = server.request("PUT", STREAM, headers={"X-API-Key": server.key})
            assert created.status == 201, created
            proxy = Proxy(kind, [f"{server.host}:{server.port}"], directory)
            try:
                figures.append(hold(server, proxy, wanted, count))
            finally:
                proxy.stop()
        finally:
            server.stop()
    cells = [f"{figure / 1024:.1f} KiB" for figure in figures]
    return f"| {kind.name} | {' | '.join(cells)} |"


def empty_nginx(directory):
    """Bytes of PSS of nginx without a client, with as many places as the file of deploy/ has."""
    Nginx.clients = 99_950
    proxy = Proxy(Nginx, ["127.0.0.1:9"], directory)
    try:
        return settled_memory(proxy)
    finally:
        proxy.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=5000, metavar="N")
    parser.add_argument("--proxy", action="append", choices=sorted(KINDS), help="this one alone (may be repeated)")
    arguments = parser.parse_args()
    count, chosen = arguments.clients, arguments.proxy or sorted(KINDS)
    print(f"| {count:,} held | {' | '.join(HELD)} |\n| --- {'| ---: ' * len(HELD)}|")
    for kind in map(KINDS.get, chosen):
        if not find(kind.name):
            print(f"{kind.name} is not installed", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as directory:
            print(measure(kind, count, Path(directory)), flush=True)
    if Nginx.name in chosen and find(Nginx.name):
        with tempfile.TemporaryDirectory() as directory:
            print(f"nginx without clients: {empty_nginx(Path(directory)) / (1 << 20):.0f} MiB")


if __name__ == "__main__":
    main()
