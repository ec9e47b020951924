"""Starting, being slow, stopping."""

import signal
import socket
import threading

import pytest
from websockets.exceptions import ConnectionClosed

import server as program
from server import UPGRADE, DidNotStart, receive, receive_head, run, until


def test_a_drain_closes_with_1001_and_exits_with_0(serve):
    server = serve("--drain", "500ms")
    clients = [server.client() for _ in range(50)]
    server.signal(signal.SIGTERM)
    for client in clients:
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(timeout=30)
        assert closed.value.rcvd.code == 1001
        assert "reconnect" in closed.value.rcvd.reason
        client.close()
    assert server.wait() == 0, server.log


def test_a_log_that_nobody_reads_does_not_end_the_server(serve):
    server = serve("--log", "debug", deaf=True)
    client = server.client()
    server.publish("c", "heard")
    assert client.recv(timeout=30) == "heard"
    server.signal(signal.SIGTERM)
    with pytest.raises(ConnectionClosed) as closed:
        client.recv(timeout=30)
    assert closed.value.rcvd.code == 1001
    client.close()
    assert server.wait() == 0


def test_health_fails_before_anything_is_closed(serve):
    server = serve("--drain", "5s")
    client = server.client()
    server.signal(signal.SIGINT)
    while (answer := server.request("GET", "/healthz")).status == 200:
        pass
    assert answer.status == 503 and answer.json()["status"] == "draining"
    assert client.ping().wait(30), "within the grace, nobody is closed yet"
    # A second signal does not wait for the rest.
    server.signal(signal.SIGINT)
    assert server.wait() == 1
    with pytest.raises(ConnectionClosed):
        client.recv(timeout=30)


def test_a_second_server_on_the_port_refuses(serve, driver):
    server = serve()
    address = f"{server.host}:{server.port}"
    code, _, stderr = run("serve", "--listen", address, "--driver", driver)
    assert code == 1
    assert f"address {address} is in use by another program" in stderr and "--listen" in stderr
    # And does not take a single connection from the first.
    assert all(server.request("GET", "/healthz").status == 200 for _ in range(20))


def test_a_port_held_by_another_program_is_named(driver):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = "127.0.0.1:%d" % other.getsockname()[1]
        code, _, stderr = run("serve", "--listen", address, "--driver", driver)
    assert code == 1 and address in stderr


def test_a_slow_reader_is_closed_and_nobody_else_notices(serve):
    server = serve("--outbound-bytes-max", "256KiB")
    slow = server.socket(receive_buffer=4096)
    slow.sendall(f"GET /raw?channel=c HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}\r\n".encode())
    assert receive_head(slow).startswith(b"HTTP/1.1 101")
    fast = [server.client(max_size=None) for _ in range(5)]
    received = [[] for _ in fast]

    def read(client, into):
        for _ in range(40):
            into.append(client.recv(timeout=30))

    readers = [threading.Thread(target=read, args=pair) for pair in zip(fast, received)]
    for reader in readers:
        reader.start()
    sent = [f"{number:02}" + "x" * 50_000 for number in range(40)]
    for data in sent:
        server.publish("c", data)
    for reader in readers:
        reader.join()
    assert all(messages == sent for messages in received)
    until("it is closed", lambda: server.metric('myriad_closes_total{reason="slow_consumer"}') == 1)
    # What was on its way still comes, and then the reason: 3008.
    tail = b""
    try:
        while piece := slow.recv(65_536):
            tail = (tail + piece)[-200:]
    except ConnectionResetError:
        pass
    slow.close()
    until("its record is free", lambda: server.metric("myriad_connections") <= len(fast) + 1)
    assert server.metric("myriad_buffered_bytes") == 0
    for client in fast:
        client.close()
    assert b"slow consumer" in tail, tail


def test_a_low_descriptor_limit_bounds_tables_and_not_connections(serve):
    server = serve("--max-connections", "3000", "--ping-interval", "0", "--drain", "1s", descriptors=1024)
    sockets = [server.socket() for _ in range(2500)]
    for connection in sockets:
        connection.sendall(f"GET /raw?channel=c HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}\r\n".encode())
    for connection in sockets:
        assert receive_head(connection).startswith(b"HTTP/1.1 101")
    assert server.metric("myriad_connections") >= 2500
    server.publish("c", "to all")
    for connection in sockets:
        assert receive(connection, 8) == b"\x81\x06to all"
    for connection in sockets:
        connection.close()


def test_a_limit_that_cannot_do_is_explained():
    with pytest.raises(DidNotStart) as failed:
        program.Server.start("--driver", "epoll", "--max-connections", "1m", descriptors=512)
    assert failed.value.code == 1
    assert "RLIMIT_NOFILE" in failed.value.log and "max-connections" in failed.value.log
