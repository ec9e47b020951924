"""What a cluster does when nothing fails, seen from its API: one order and one history on all nodes, whatever a channel's name is."""

import http.client
import re
import threading
import time

import nats
import pytest
from faults import MYRIAD
from node import Node, start_all

NODES = 2
# Namespaces with history in the nodes' configuration.
LOGS = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def server(folder, program):
    """The NATS server."""
    cluster = nats.Cluster(program, folder, 1)
    cluster.start()
    yield cluster.servers[0]
    cluster.stop()


@pytest.fixture(scope="module")
def nodes(folder, server):
    # The one reads all of each stream, the other one hears what its clients want: for both it is the same cluster.
    url, interests = f"nats://127.0.0.1:{server.port}", ["stream", "channel"]
    running = [Node(MYRIAD, folder, index, url, 1, interest=interests[index]) for index in range(NODES)]
    start_all(running)
    yield running
    for node in running:
        node.kill()


def numbers(answer):
    return [publication["data"]["n"] for publication in answer["result"]["publications"]]


def history(node, channel):
    return node.call("history", channel=channel, limit=100)


def publish(node, channel, number, **wishes):
    answer = node.call("publish", channel=channel, data={"n": number}, **wishes)
    return answer["result"]


def test_what_nats_will_never_take_is_refused_for_good(nodes):
    # nats-server takes messages of 1 MiB with their headers, and the API requests of as much.
    answer = nodes[0].call("publish", channel="refused", data="x" * 1_048_500)
    assert answer["error"]["code"] == 107, answer
    assert "max_payload" in answer["error"]["detail"]
    assert publish(nodes[0], "refused", 1)["offset"] > 0


def test_both_nodes_have_one_order(nodes):
    positions = [publish(nodes[number % NODES], "order", number) for number in range(20)]
    offsets = [position["offset"] for position in positions]
    assert offsets == sorted(set(offsets))
    assert len({position["epoch"] for position in positions}) == 1
    nats.wait_for("both have read it", lambda: all(len(numbers(history(node, "order"))) == 20 for node in nodes))
    assert numbers(history(nodes[0], "order")) == numbers(history(nodes[1], "order")) == list(range(20))


def test_a_publisher_finds_its_publication_on_its_node(nodes):
    for number in range(10):
        publish(nodes[0], "own", number)
        assert numbers(history(nodes[0], "own"))[-1] == number


@pytest.mark.parametrize(
    "name", ["a b", "*", ">", "a.*.b", "..", "tab\there", "\u00a0", "\u3000x\u2028", "del\x7f", "=20", "~beat", "\N{GRINNING FACE}"]
)
def test_every_name_works(nodes, name):
    publish(nodes[0], name, 1)
    nats.wait_for("the other node has read it", lambda: numbers(history(nodes[1], name)) == [1])


def test_a_key_is_one_publication_on_any_node(nodes):
    first = publish(nodes[0], "key", 1, idempotency_key="k \u00e9")
    second = publish(nodes[1], "key", 2, idempotency_key="k \u00e9")
    assert first == second
    assert numbers(history(nodes[0], "key")) == [1]


def test_a_history_of_several_pages_is_whole(nodes):
    # A node that hears by channel reads it from NATS in pages of 1,024 messages or 3.5 MiB. Some messages fill half of one.
    for channel, sizes in (("many", [10] * 1_500), ("large", [20, 900_000, 20, 20, 700_000] * 3 + [900_000] * 6)):
        for number, size in enumerate(sizes):
            answer = nodes[0].call("publish", channel=channel, data={"n": number, "text": "x" * size})
            assert "result" in answer, answer
        for node in nodes:
            answer = node.call("history", channel=channel, limit=2_000)
            assert numbers(answer) == list(range(len(sizes))), node.name


def test_a_removed_history_is_gone_on_all_nodes(nodes):
    for number in range(3):
        publish(nodes[0], "removed", number)
    assert nodes[1].call("history_remove", channel="removed") == {"result": {}}
    assert numbers(history(nodes[1], "removed")) == []
    nats.wait_for("the other node has read it", lambda: numbers(history(nodes[0], "removed")) == [])
    publish(nodes[0], "removed", 9)
    assert numbers(history(nodes[0], "removed")) == [9]


def test_versions_count_on_all_nodes(nodes):
    for node, number, version in [(0, 1, 5), (1, 2, 4), (1, 3, 6)]:
        publish(nodes[node], "versions", number, version=version)
    nats.wait_for("both have read it", lambda: all(numbers(history(node, "versions")) == [1, 3] for node in nodes))


def test_a_version_is_left_out_on_all_nodes_whatever_they_remember(nodes):
    publish(nodes[0], "state", 5, version=5)
    assert nodes[0].call("history_remove", channel="state") == {"result": {}}
    # It has never seen version 5, and finds only the removal.
    nodes[1].kill()
    nodes[1].start()
    nodes[1].wait_until_ready()
    for node in nodes:
        publish(node, "state", 4, version=4)
    publish(nodes[1], "state", 6, version=6)
    nats.wait_for("both have read it", lambda: all(numbers(history(node, "state"))[-1:] == [6] for node in nodes))
    assert [numbers(history(node, "state")) for node in nodes] == [[6], [6]]


def test_of_equal_versions_at_once_one_is_published(nodes):
    answers = []

    def publish_many(node):
        answers.extend(publish(node, "race", version, version=version) for version in range(1, 41))

    threads = [threading.Thread(target=publish_many, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 80
    nats.wait_for("both have read it", lambda: all(numbers(history(node, "race"))[-1:] == [40] for node in nodes))
    histories = [numbers(history(node, "race")) for node in nodes]
    assert histories[0] == histories[1] == sorted(set(histories[0]))


def metric(node, name):
    """The sum of a metric over its labels."""
    _, text = node.request("GET", "/metrics")
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.M))


def has_read_all_of(nodes, channel, wanted):
    """Whether all nodes have this in the channel's history, and are healthy."""
    return all(numbers(history(node, channel)) == wanted and node.is_healthy() for node in nodes)


def test_a_message_of_another_namespace_is_left_out(nodes, server):
    for number in range(5):
        publish(nodes[0], "chat:strays", number)
    # The other node hears no more than what its clients want.
    reader = nodes[0]
    before = metric(reader, "myriad_broker_unreadable_messages_total")
    server.send(
        # The namespace is left out, another one is taken, none has the channel, a name is too long.
        nats.pub("myriad.h.~.chat:strays", '{"n":7}'),
        nats.pub("myriad.h.chat.strays", '{"n":7}'),
        nats.pub("myriad.h.~.live:strays", '{"n":7}'),
        nats.pub(f"myriad.h.~.{'a' * 256}", '{"n":7}'),
        nats.hpub("myriad.h.~.chat:strays", b"\r\nMyriad-Removed: 1\r\n"),
    )
    nats.wait_for("they are counted", lambda: metric(reader, "myriad_broker_unreadable_messages_total") == before + 5)
    publish(nodes[1], "chat:strays", 5)
    publish(nodes[1], "strays", 6)
    nats.wait_for("both have read it", lambda: has_read_all_of(nodes, "chat:strays", [0, 1, 2, 3, 4, 5]))
    nats.wait_for("both have read it", lambda: has_read_all_of(nodes, "strays", [6]))


def test_rubbish_where_beats_stand_is_left_out(nodes, server):
    publish(nodes[0], "beats", 1)
    server.send(nats.pub("myriad.h.~.~beat", "hello"), nats.pub("myriad.h.~.~other", '{"epoch":"abcdefgh"}'))
    position = publish(nodes[0], "beats", 2)
    # A node that starts finds the rubbish as the last beat; the others know what the log was.
    nodes[1].kill()
    nodes[1].start()
    nodes[1].wait_until_ready()
    nats.wait_for("both have read it", lambda: has_read_all_of(nodes, "beats", [1, 2]))
    publish(nodes[1], "beats", 3)
    nats.wait_for("both have read it", lambda: numbers(history(nodes[0], "beats"))[-1:] == [3])
    # Without a beat a log is opened again after 25 s.
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert metric(nodes[0], "myriad_broker_caught_up") == LOGS
        time.sleep(1)
    assert publish(nodes[0], "beats", 4)["offset"] > position["offset"]
    nats.wait_for("both have read it", lambda: all(numbers(history(node, "beats"))[-1:] == [4] for node in nodes))


# What async-nats cannot parse, or takes for no message. Nodes read only "live" by it.
POISON = {
    "a space of Unicode in the subject": nats.hpub("myriad.h.~.a\u3000b", b"\r\nA: b\r\n", b"1"),
    "a header in Latin-1": nats.hpub("myriad.h.~.poison", b"\r\nName: \xe9\r\n", b"1"),
    "a header without a colon": nats.hpub("myriad.h.~.poison", b"\r\nName\r\n", b"1"),
    "a status": nats.hpub("myriad.h.~.poison", b" 503\r\n", b"1"),
    "a heartbeat": nats.hpub("myriad.h.~.poison", b" 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\n"),
    "live": nats.hpub("myriad.l.poison", b"\r\nName: \xe9\r\n", b"1"),
}


@pytest.mark.parametrize("what", POISON)
def test_a_message_that_cannot_be_parsed_makes_no_node_deaf(nodes, server, what):
    channel = f"behind {what}"
    publish(nodes[0], channel, 1)
    server.send(*[POISON[what]] * 3)
    for number, node in enumerate(nodes, 2):
        nats.wait_for("a publication is taken", lambda: "result" in node.call("publish", channel=channel, data={"n": number}), 10)
    nats.wait_for("both have read it", lambda: has_read_all_of(nodes, channel, [1, 2, 3]), 15)
    # A node that starts reads them again.
    nodes[1].kill()
    nodes[1].start()
    nodes[1].wait_until_ready()
    assert numbers(history(nodes[1], channel)) == [1, 2, 3]


def test_a_node_without_clients_answers_its_publishers_before_it_ends(nodes):
    answers, cut = {}, []

    def publish_one(number):
        try:
            answers[number] = nodes[1].call("publish", channel="drain", data={"n": number})
        except http.client.RemoteDisconnected:
            cut.append(number)
        except OSError:
            # It came when nobody listened any more.
            pass

    threads = [threading.Thread(target=publish_one, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    nodes[1].stop()
    for thread in threads:
        thread.join()
    nodes[1].process.wait(30)
    assert cut == []
    stored = {number for number, answer in answers.items() if "result" in answer}
    nats.wait_for("the other node has read them", lambda: stored <= set(numbers(history(nodes[0], "drain"))))
    nodes[1].start()
    nodes[1].wait_until_ready()


def test_metrics_of_the_broker_are_those_of_the_page(nodes):
    # Each outcome is counted from its first time on.
    publish(nodes[0], "metrics", 1)
    _, text = nodes[0].request("GET", "/metrics")
    shown = {found for found in re.findall(r"^(myriad_broker_\w+)", text, re.M)}
    page = (nats.ROOT / "docs" / "metrics.md").read_text()
    assert shown == set(re.findall(r"^\| `(myriad_broker_\w+)", page, re.M))
    assert re.search(r"^myriad_broker_connected 1$", text, re.M)


def test_streams_are_read_and_not_written(nodes):
    answer = nodes[0].call("publish", channel="stream", data={"n": 1})
    assert "result" in answer
    status, body = nodes[0].request("PUT", "/v1/stream/other")
    assert status == 501 and "POST /api/publish" in body
    status, body = nodes[0].request("GET", "/v1/stream/stream?offset=-1")
    assert (status, body) == (200, '[{"n": 1}]')


def ends_with(node, text):
    """Whether a node does not start, and says so."""
    node.start()
    status = node.process.wait(60)
    node.process = None
    return status == 1 and text in node.log.read_text()


def test_a_namespace_in_several_streams_has_one_order_for_each_channel(folder, server):
    url = f"nats://127.0.0.1:{server.port}"
    prefix = ["--broker-prefix", "parts"]

    def node(index, partitions):
        options = [*prefix, "--broker-partitions", str(partitions)]
        return Node(MYRIAD, folder, index, url, 1, options=options)

    running = [node(10, 4), node(11, 4)]
    try:
        start_all(running)
        channels = [f"part {number}" for number in range(12)]
        for number in range(10):
            for channel in channels:
                publish(running[number % 2], channel, number)
        for channel in channels:
            nats.wait_for("both have read it", lambda channel=channel: has_read_all_of(running, channel, list(range(10))))
        streams = (server.ask("jsz?accounts=true&streams=true"))["account_details"][0]["stream_detail"]
        messages = {one["name"]: one["state"]["messages"] for one in streams if one["name"].startswith("parts-~~")}
        assert sorted(messages) == [f"parts-~~{partition}" for partition in range(4)]
        # Each has a part of the channels, and its beats.
        assert all(count > 10 for count in messages.values()), messages
        # A node that looks elsewhere does not start.
        assert ends_with(node(12, 2), "all nodes need broker-partitions = 4")
        assert ends_with(node(13, 8), "all nodes need broker-partitions = 4")
        assert ends_with(node(14, 1), "set broker-partitions back")
    finally:
        for one in running:
            one.kill()


def test_a_node_chooses_what_it_hears(folder, server):
    url = f"nats://127.0.0.1:{server.port}"
    prefix = ["--broker-prefix", "choice"]
    running = [
        Node(MYRIAD, folder, 20, url, 1, options=prefix),
        Node(MYRIAD, folder, 21, url, 1, options=[*prefix, "--broker-auto-rate", "100"], interest="auto"),
    ]
    (other, chooses), published = running, []

    def publish_more(of_others):
        """Adds to the channel that the node wants, and one to each of so many others."""
        number = len(published)
        published.append(number)
        wanted = {"publish": {"channel": "wanted", "data": {"n": number}}}
        more = [{"publish": {"channel": f"other {index}", "data": {}}} for index in range(of_others)]
        assert "publish" in other.call("batch", commands=[wanted, *more])["replies"][0]

    def hears_channels():
        _, text = chooses.request("GET", "/metrics")
        return 'myriad_broker_by_channel{stream="choice-~"} 1' in text.splitlines()

    def is_republished():
        streams = server.ask("jsz?accounts=true&streams=true&config=true")["account_details"][0]["stream_detail"]
        return any("republish" in one["config"] for one in streams if one["name"] == "choice-~")

    def hears_channels_after(of_others):
        publish_more(of_others)
        check()
        return hears_channels()

    def check():
        """The newest are all there, once and in order."""

        def has_newest():
            return numbers(chooses.call("history", channel="wanted", limit=100, reverse=True)) == published[: -101 : -1]

        nats.wait_for("the node that chooses has read them", has_newest)

    try:
        start_all(running)
        # It wants the channel from here on.
        check()
        assert not hears_channels() and not is_republished()
        nats.wait_for("it hears single channels", lambda: hears_channels_after(50), seconds=120)
        assert is_republished()
        check()
        nats.wait_for("it hears all again", lambda: not hears_channels_after(0), seconds=120)
        check()
    finally:
        for one in running:
            one.kill()
