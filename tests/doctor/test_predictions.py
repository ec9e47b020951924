"""Doctor's predictions are right within 5%, for each limit that can be set low here."""

import re
import resource
import socket
import sys

import pytest

from confine import MYRIAD, MemoryGroup, Missing, Network, low_descriptors, without_io_uring
from myriad import HERE, Server, crowd, examine, limit, outside

PLAIN = [sys.executable, HERE / "plain.py"]


def close(predicted, happened):
    assert abs(predicted - happened) <= 0.05 * happened, f"predicted {predicted}, happened at {happened}"


@pytest.fixture
def network():
    try:
        network = Network()
    except Missing as reason:
        pytest.skip(str(reason))
    yield network
    network.close()


def test_an_ordinary_server_ends_at_its_descriptors():
    world = low_descriptors(1200)
    found = examine(world, "--program", "ordinary", "--connections", "5k")
    assert found["first_stop"] == "descriptors of a process"
    server = world.start(*PLAIN, "descriptors", stdout=-1)
    address = ("127.0.0.1", int(server.stdout.readline()))
    held = []
    try:
        while len(held) < 1300:
            held.append(socket.create_connection(address))
    except OSError:
        pass  # It is full, and gone.
    happened = int(server.stdout.readline())
    server.wait()
    for connection in held:
        connection.close()
    close(found["connections"], happened)


def test_one_source_address_ends_at_its_ports(network):
    network.set("net.ipv4.ip_local_port_range", "10000 11999")
    network.set("net.ipv4.ip_local_reserved_ports", "11000-11099")
    found = examine(network.world(), "--role", "client", "--connections", "3k")
    assert found["first_stop"] == "source ports"
    done = network.world().run(*PLAIN, "ports", 8000)
    close(found["connections"], int(done.stdout))


def test_the_crowd_refuses_at_the_start_what_doctor_says_it_cannot_have(network):
    network.set("net.ipv4.ip_local_port_range", "10000 11999")
    found = examine(network.world(), "--role", "client", "--connections", "3k")
    done, _ = crowd(network.world(), "127.0.0.1:8000", 3000, "--source-ip", "127.0.0.2")
    assert done.returncode == 104
    allowed = re.search(r"Source ports allow ([\d,]+) of the 3,000 wanted", done.stderr)
    assert int(allowed[1].replace(",", "")) == found["connections"], done.stderr


def test_a_burst_ends_at_the_accept_queue(network):
    network.set("net.core.somaxconn", "300")
    found = examine(network.world(), "--program", "ordinary", "--connections", "1k")
    queue = limit(found, "accept queue")
    assert queue["effect"] == "delays_bursts" and queue["concern"] == "worse"
    done = network.world().run(*PLAIN, "burst", 1000)
    close(queue["connections"], int(done.stdout))


def test_handshakes_without_cookies_end_at_the_backlog(network):
    network.set("net.ipv4.tcp_syncookies", "0")
    network.set("net.ipv4.tcp_max_syn_backlog", "512")
    found = examine(network.world(), "--program", "ordinary", "--connections", "1k")
    backlog = limit(found, "SYN backlog")
    assert backlog["effect"] == "delays_bursts" and backlog["concern"] == "worse"
    done = network.world().run(*PLAIN, "handshakes", 1000, 100)
    assert done.returncode == 0, done.stderr
    held, came_through = map(int, done.stdout.split())
    close(backlog["connections"], held)
    assert came_through == 0
    [change] = [change for change in found["changes"] if change["setting"] == {"sysctl": "net.ipv4.tcp_syncookies"}]
    # The change that doctor proposes helps.
    other = Network()
    try:
        other.set("net.ipv4.tcp_syncookies", change["to"])
        other.set("net.ipv4.tcp_max_syn_backlog", "512")
        done = other.world().run(*PLAIN, "handshakes", 1000, 100)
    finally:
        other.close()
    assert int(done.stdout.split()[1]) == 100, done.stdout + done.stderr


def test_tracked_connections_end_with_the_table(network):
    done = network.world().run(sys.executable, HERE / "firewall.py")
    if done.returncode != 0:
        pytest.skip(f"connection tracking cannot be turned on here: {done.stderr.strip()}")
    found = examine(network.world(), "--role", "both", "--connections", "1g")
    tracking = limit(found, "connection tracking")
    assert found["machine"]["conntrack"]["tracks"] is True
    if limit(found, "memory")["connections"] < 1.2 * tracking["connections"]:
        pytest.skip("there is not enough memory to fill the table of connection tracking")
    wanted = tracking["connections"] * 21 // 20
    server = Server(network.world(), "--max-connections", wanted, "--ping-interval", "0")
    try:
        _, events = crowd(network.world(), server.address, wanted)
    finally:
        server.stop()
    happened = max(event.get("connected", 0) for event in events)
    assert happened < wanted
    close(tracking["connections"], happened)


def test_ended_connections_keep_their_entries_for_as_long_as_doctor_says(network):
    done = network.world().run(sys.executable, HERE / "firewall.py")
    if done.returncode != 0:
        pytest.skip(f"connection tracking cannot be turned on here: {done.stderr.strip()}")
    network.set("net.netfilter.nf_conntrack_tcp_timeout_time_wait", "77")
    before = int(network.read("net.netfilter.nf_conntrack_count"))
    done = network.world().run(*PLAIN, "ends", 400)
    assert done.returncode == 0, done.stderr
    kept = int(network.read("net.netfilter.nf_conntrack_count")) - before
    assert abs(kept - 400) <= 20, f"400 connections left {kept} entries"
    found = examine(network.world(), "--role", "both", "--connections", "1k")
    assert limit(found, "ended connections, tracked")["value"] == "77 s"
    # Doctor read the table before it opened connections of its own.
    free = found["machine"]["conntrack"]["entries_max"] - found["machine"]["conntrack"]["entries"]
    assert found["machine"]["conntrack"]["entries"] >= kept
    assert limit(found, "connection tracking")["connections"] == free


@pytest.mark.parametrize("version", [1, 2])
def test_a_server_is_killed_where_its_memory_group_ends(version):
    try:
        group = MemoryGroup(version, 160 << 20)
    except Missing as reason:
        pytest.skip(str(reason))
    try:
        found = examine(group.world(), "--load", "idle", "--connections", "1m")
        assert found["first_stop"] == "memory of the control group"
        server = Server(group.world(), "--max-connections", "1m", "--ping-interval", "0")
        # The server uses the same words at its start.
        assert any("Memory of the control group allows" in line for line in server.said)
        try:
            _, events = crowd(outside(), server.address, found["connections"] * 5 // 4, duration="10s")
            assert group.kills() >= 1
        finally:
            server.stop()
        [done] = [event for event in events if event["event"] == "done"] or [None]
        lost = max(event.get("errors", {}).get("lost_end", 0) for event in events)
        connected = max(event.get("connected", 0) for event in events)
        assert done
        close(found["connections"], max(lost, connected))
    finally:
        group.close()


def test_unread_bytes_end_where_a_group_bounds_what_tcp_may_take(network):
    try:
        group = MemoryGroup(1, 400 * resource.getpagesize(), "memory.kmem.tcp.limit_in_bytes")
    except Missing as reason:
        pytest.skip(str(reason))
    inside = network.world(group.join)
    server = None
    try:
        buffers = limit(examine(inside, "--connections", "1k"), "TCP buffers of the control group")
        assert buffers["effect"] == "degrades" and buffers["concern"] == "worse"
        server = inside.start(*PLAIN, "reader", stdout=-1)
        done = network.world().run(*PLAIN, "unread", server.stdout.readline().strip(), 1000)
        close(buffers["connections"], int(done.stdout))
    finally:
        if server:
            server.kill()
            server.wait()
            server.stdout.close()
        group.close()


def test_without_io_uring_small_tables_end_where_doctor_says():
    world = without_io_uring(low_descriptors(560).prepare)
    found = examine(world, "--connections", "1m", "--load", "idle")
    assert "refused" in found["machine"]["io_uring"], found["machine"]["io_uring"]
    assert found["first_stop"] == "descriptor tables"
    predicted = found["connections"]
    # The server says the same before it starts, and holds that many if asked to.
    refused = world.run(MYRIAD, "serve", "--dev", "--listen", "127.0.0.1:0", "--max-connections", "1m")
    assert refused.returncode == 1
    assert f"{predicted:,}" in refused.stderr, refused.stderr
    server = Server(world, "--max-connections", predicted, "--ping-interval", "0")
    try:
        assert any(line.startswith("listening on") and "epoll" in line for line in server.said), server.said
        _, events = crowd(outside(), server.address, predicted * 2)
    finally:
        server.stop()
    close(predicted, max(event.get("connected", 0) for event in events))
