"""What concerns the clients of all nodes: whichever node is asked, it answers for all of them, or says whose answers are missing."""

import http.client
import json
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import nats
import pytest
from client import Client, Refused
from faults import MYRIAD
from node import SECRET, Node, start_all
from websockets.exceptions import ConnectionClosed

NODES = 3


@pytest.fixture(scope="module")
def all_nodes(program, tmp_path_factory):
    """Nodes that know each other, and one more that does not run."""
    folder = tmp_path_factory.mktemp("nodes")
    cluster = nats.Cluster(program, folder, 1)
    interests = ["stream", "channel", "channel", "stream"]
    nodes = [Node(MYRIAD, folder, index, cluster.url(), 1, interest=interests[index]) for index in range(NODES + 1)]
    try:
        cluster.start()
        start_all(nodes[:NODES])
        wait_for_nodes(nodes[:NODES])
        yield nodes
    finally:
        for node in nodes:
            node.kill()
        cluster.stop()


@pytest.fixture
def nodes(all_nodes):
    return all_nodes[:NODES]


@pytest.fixture
def clients(nodes):
    """Makes clients, which end with the test."""
    made = []

    def client(node, user="", **claims):
        made.append(Client(nodes[node], user, **claims))
        return made[-1]

    yield client
    for one in made:
        one.close()


def result(node, method, **request):
    answer = node.call(method, **request)
    assert "result" in answer, answer
    return answer["result"]


def is_refused(node, user, **claims):
    try:
        Client(node, user, **claims).close()
    except (Refused, ConnectionClosed):
        return True
    return False


def known(node):
    return len(result(node, "info")["nodes"])


def wait_for_nodes(nodes):
    nats.wait_for("all know each other", lambda: all(known(node) == len(nodes) for node in nodes))


def test_nodes_that_do_not_agree_say_so(program, tmp_path):
    """As two clusters with one prefix, and as a node with the file of yesterday."""
    cluster = nats.Cluster(program, tmp_path, 1)
    ours, changed, foreign = (Node(MYRIAD, tmp_path, index, cluster.url(), 1) for index in range(3))

    def replace(node, old, new):
        text = node.config.read_text()
        assert old in text
        node.config.write_text(text.replace(old, new))

    def unlike(node):
        _, page = node.request("GET", "/metrics")
        found = re.findall(r'^myriad_nodes_unlike_total\{reason="(\w+)"\} (\d+)', page, re.MULTILINE)
        return {reason: int(count) for reason, count in found if int(count)}

    try:
        cluster.start()
        replace(changed, "presence = true", "presence = false")
        replace(foreign, SECRET, "another secret, of another cluster, of 32 bytes")
        start_all([ours, changed, foreign])
        wait_for_nodes([ours, changed, foreign])
        nats.wait_for("each is seen for what it is", lambda: unlike(ours) == {"namespaces": 1, "keys": 1})
        log = ours.log.read_text()
        assert "has other namespaces than this one" in log
        assert "verifies tokens by other keys than this one" in log
        assert SECRET not in log

        # Who takes the same keys with a reload is not named any more, also by a node that comes later.
        replace(foreign, "another secret, of another cluster, of 32 bytes", SECRET)
        before = foreign.log.stat().st_size
        foreign.process.send_signal(signal.SIGHUP)
        nats.wait_for("it has reloaded", lambda: "SIGHUP" in foreign.log.read_text()[before:])
        changed.kill()
        replace(changed, "presence = false", "presence = true")
        start_all([changed])
        nats.wait_for("they know each other", lambda: known(changed) == 3)
        nats.wait_for("it has heard both", lambda: unlike(changed) == {})
    finally:
        for node in (ours, changed, foreign):
            node.kill()
        cluster.stop()


def test_info_names_all_nodes(nodes):
    names = [sorted(node["uid"] for node in result(node, "info")["nodes"]) for node in nodes]
    assert len(set(names[0])) == NODES and names == [names[0]] * NODES


def test_members_are_those_of_all_nodes(nodes, clients):
    members = [clients(0, "ada"), clients(1, "ada"), clients(2, "bob", info={"name": "B"}), clients(2)]
    for member in members:
        member.subscribe("members")
    ids = sorted(member.id for member in members)
    for node in nodes:
        presence = result(node, "presence", channel="members")["presence"]
        assert sorted(presence) == ids
        assert presence[members[2].id] == {"user": "bob", "client": members[2].id, "conn_info": {"name": "B"}}
        # Anonymous clients are one user.
        assert result(node, "presence_stats", channel="members") == {"num_clients": 4, "num_users": 3}
    for member in members:
        seen = member.presence("members")
        assert sorted(seen) == ids
        assert seen[members[2].id] == {"user": "bob", "client": members[2].id, "conn_info": {"name": "B"}}
        assert member.ask("presence_stats", {"channel": "members"}) == {"num_clients": 4, "num_users": 3}


def test_members_come_in_pages(nodes, clients):
    ids = sorted(made.id for made in (clients(index % NODES) for index in range(7)) if made.subscribe("pages") is not None)
    read, cursor = [], ""
    while True:
        page = result(nodes[0], "presence", channel="pages", limit=2, cursor=cursor)
        read += page["presence"]
        cursor = page.get("cursor")
        if not cursor:
            break
    assert read == ids


def test_channels_have_the_clients_of_all_nodes(nodes, clients):
    for index in range(NODES):
        clients(index).subscribe("shared")
    clients(1).subscribe("shared too")
    for node in nodes:
        channels = result(node, "channels", pattern="shared*")["channels"]
        assert channels == {"shared": {"num_clients": NODES}, "shared too": {"num_clients": 1}}
    page = result(nodes[2], "channels", pattern="shared*", limit=1)
    assert page == {"channels": {"shared": {"num_clients": NODES}}, "cursor": "shared"}


def test_connections_of_all_nodes_come_in_pages(nodes, clients):
    made = sorted(clients(index % NODES, "carol").id for index in range(7))
    whole = result(nodes[0], "connections", user="carol")
    assert sorted(whole["connections"]) == made and "cursor" not in whole
    for node in nodes:
        read, cursor = [], ""
        while True:
            page = result(node, "connections", user="carol", limit=2, cursor=cursor)
            assert len(page["connections"]) <= 2
            read += page["connections"]
            cursor = page.get("cursor")
            if not cursor:
                break
        assert sorted(read) == made
    assert nodes[0].call("connections", user="carol", cursor="x")["error"]["code"] == 107


def test_a_user_is_disconnected_everywhere(nodes, clients):
    others = clients(0, "eve")
    ended = [clients(index, "dan") for index in range(NODES)]
    order = {"code": 4242, "reason": "away"}
    assert nodes[0].call("disconnect", user="dan", disconnect=order) == {"result": {}}
    assert [client.closed() for client in ended] == [4242] * NODES
    assert others.subscribe("still here") is not None


def test_a_client_is_disconnected_by_its_id_from_any_node(nodes, clients):
    client = clients(2, "fay")
    assert nodes[0].call("disconnect", user="fay", client=client.id) == {"result": {}}
    assert client.closed() == 3503


def test_a_user_is_subscribed_and_unsubscribed_everywhere(nodes, clients):
    users = [clients(index, "gil") for index in range(NODES)]
    assert nodes[1].call("subscribe", user="gil", channel="given", info={"a": 1}) == {"result": {}}
    for user in users:
        assert user.wait_for_push("subscribe")["channel"] == "given"
    assert len(result(nodes[0], "presence", channel="given")["presence"]) == NODES
    assert nodes[2].call("unsubscribe", user="gil", channel="given") == {"result": {}}
    for user in users:
        assert user.wait_for_push("unsubscribe")["channel"] == "given"


def test_a_user_expires_everywhere(nodes, clients):
    users = [clients(index, "hal", exp=int(time.time()) + 600) for index in range(NODES)]
    assert nodes[1].call("refresh", user="hal", expired=True) == {"result": {}}
    assert {user.closed() for user in users} == {3005}


def test_revoked_tokens_end_connections_everywhere(nodes, clients):
    by_id, by_user = clients(2, "ian", jti="t1"), clients(1, "jan", iat=int(time.time()) - 10)
    assert nodes[0].call("revoke_token", uid="t1") == {"result": {}}
    assert by_id.closed() == 3500
    assert nodes[0].call("invalidate_user_tokens", user="jan") == {"result": {}}
    assert by_user.closed() == 3500
    for node in nodes:
        assert is_refused(node, "ian", jti="t1")


def test_a_node_that_comes_learns_which_tokens_are_revoked(all_nodes):
    assert all_nodes[0].call("revoke_token", uid="t2") == {"result": {}}
    newcomer = all_nodes[NODES]
    newcomer.start()
    newcomer.wait_until_ready()
    wait_for_nodes(all_nodes)

    nats.wait_for("the token is refused", lambda: is_refused(newcomer, "kim", jti="t2"))
    # It says goodbye: nobody misses it.
    newcomer.stop()
    nats.wait_for("it has ended", lambda: newcomer.process.poll() is not None)
    answer = result(all_nodes[0], "info")
    assert "unanswered_nodes" not in answer and len(answer["nodes"]) == NODES


class HttpStream:
    """A client whose commands come apart from its connection."""

    def __init__(self, node):
        self.connection = http.client.HTTPConnection(node.place.host, node.port, timeout=10)
        self.connection.request("POST", "/connection/http_stream", json.dumps({"id": 1, "connect": {}}))
        self.replies = self.connection.getresponse()
        self.connected = self.reply()["connect"]

    def reply(self):
        while True:
            reply = json.loads(self.replies.readline())
            if reply:
                return reply

    def close(self):
        self.connection.close()


def emulate(at, **request):
    return at.request("POST", "/emulation", json.dumps(request))[0]


def test_commands_find_the_node_of_their_session(nodes):
    client = HttpStream(nodes[0])
    where = {"session": client.connected["session"], "node": client.connected["node"]}
    for number, node in enumerate(nodes, start=2):
        command = json.dumps({"id": number, "subscribe": {"channel": f"emulated {number}"}})
        assert emulate(node, data=command, **where) == 204
        assert client.reply()["id"] == number
    # The session alone is enough.
    where["node"] = ""
    command = json.dumps({"id": 9, "presence": {"channel": "emulated 2"}})
    assert emulate(nodes[2], data=command, **where) == 204
    reply = client.reply()
    assert (reply["id"], list(reply["presence"]["presence"])) == (9, [client.connected["client"]])
    assert emulate(nodes[1], data=command, session=where["session"], node="0123456789abcdef") == 404
    client.close()


def test_who_does_not_answer_is_named(nodes, clients):
    member = clients(0, "lea")
    member.subscribe("partial")
    frozen = nodes[2]
    theirs = clients(2, "lea")
    theirs.subscribe("partial")
    names = {node["uid"] for node in result(nodes[0], "info")["nodes"]}
    frozen.freeze()
    try:
        # All of them while it counts as there.
        with ThreadPoolExecutor() as pool:
            listed = pool.submit(result, nodes[0], "presence", channel="partial")
            ordered = pool.submit(nodes[0].call, "disconnect", user="nobody")
            with pytest.raises(Refused):
                member.presence("partial")
        answer, error = listed.result(), ordered.result()["error"]
        assert list(answer["presence"]) == [member.id] and len(answer["unanswered_nodes"]) == 1
        assert error["code"] == 100 and "did not answer" in error["detail"]
        # Who is silent for long has gone, and so have its clients.
        nats.wait_for("it is given up", lambda: known(nodes[0]) == NODES - 1)
        answer = result(nodes[0], "presence", channel="partial")
        assert "unanswered_nodes" not in answer
    finally:
        frozen.thaw()
    wait_for_nodes(nodes)
    assert {node["uid"] for node in result(nodes[0], "info")["nodes"]} == names
    assert len(member.presence("partial")) == 2


def test_metrics_of_nodes_are_those_of_the_page(nodes):
    result(nodes[0], "info")

    def shown():
        return nodes[0].request("GET", "/metrics")[1]

    nats.wait_for("the others are counted", lambda: f"\nmyriad_nodes_others {NODES - 1}\n" in shown())
    names = set(re.findall(r"^(myriad_nodes_\w+)", shown(), re.M))
    page = (nats.ROOT / "docs" / "metrics.md").read_text()
    assert names == set(re.findall(r"^\| `(myriad_nodes_\w+)", page, re.M))


def next_push(client):
    """The next join or leave."""
    while True:
        for push in client.pushes:
            if "join" in push or "leave" in push:
                client.pushes.remove(push)
                return push
        client.receive()


def watching(clients, channel):
    """A client of the first node that has heard of its own join."""
    watcher = clients(0, "ada")
    watcher.subscribe(channel)
    assert next_push(watcher)["join"]["info"]["user"] == "ada"
    return watcher


def test_clients_on_other_nodes_join_and_leave(nodes, clients):
    watcher = watching(clients, "watched:clients")
    other = clients(1, "bob", info={"name": "B"})
    other.subscribe("watched:clients")
    info = {"user": "bob", "client": other.id, "conn_info": {"name": "B"}}
    assert next_push(watcher) == {"channel": "watched:clients", "join": {"info": info}}
    other.close()
    assert next_push(watcher) == {"channel": "watched:clients", "leave": {"info": info}}


def test_users_join_with_their_first_client_on_any_node(nodes, clients):
    watcher = watching(clients, "users:all")
    first, second = clients(1, "bob"), clients(2, "bob")
    first.subscribe("users:all")
    assert next_push(watcher)["join"]["info"]["user"] == "bob"
    # The second client of the same user says nothing; that of another user, behind it, does.
    second.subscribe("users:all")
    third = clients(2, "carol")
    third.subscribe("users:all")
    assert next_push(watcher)["join"]["info"]["user"] == "carol"
    first.close()
    third.close()
    assert next_push(watcher)["leave"]["info"]["user"] == "carol"
    second.close()
    assert next_push(watcher)["leave"]["info"]["user"] == "bob"


def test_a_node_that_comes_knows_users_and_one_that_is_killed_has_none(all_nodes, clients):
    newcomer = all_nodes[NODES]
    bob = clients(1, "bob")
    bob.subscribe("users:late")
    newcomer.start()
    newcomer.wait_until_ready()
    wait_for_nodes(all_nodes)
    watcher = watching(clients, "users:late")
    theirs = [Client(newcomer, user) for user in ("bob", "dan")]
    for client in theirs:
        client.subscribe("users:late")
    assert next_push(watcher)["join"]["info"]["user"] == "dan"
    newcomer.kill()
    # Bob is still on another node.
    leave = next_push(watcher)["leave"]["info"]
    assert (leave["user"], leave["client"]) == ("dan", "00000000-0000-0000-0000-000000000000")
