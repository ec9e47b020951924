"""The API through `cent`, Centrifugo's library for Python: every method that it has, with both of its clients."""

import asyncio
import inspect
import json
import time

import cent
import pytest
from cent import dto
from cent.exceptions import CentApiResponseError, CentTransportError, CentUnauthorizedError
from websockets.exceptions import ConnectionClosed

from server import PATIENCE
from test_tokens import SECRET, token

CONFIG = f"""
[client.token]
hmac_secret_key = "{SECRET}"
[channel.without_namespace]
allow_subscribe_for_client = true
[[channel.namespaces]]
name = "chat"
presence = true
join_leave = true
history_size = 100
history_ttl = "300s"
force_recovery = true
allow_subscribe_for_client = true
allow_publish_for_client = true
[http_api]
key = "k"
"""
# Methods of a server with users' states and devices, which this one has not.
ABSENT = {
    "block_user", "cancel_push", "delete_user_status", "device_list", "device_register", "device_remove", "device_topic_list",
    "device_topic_update", "device_update", "get_user_status", "send_push_notification", "unblock_user", "update_push_status",
    "update_user_status", "user_topic_list", "user_topic_update",
}  # fmt: skip
PRESENT = {
    "batch", "broadcast", "channels", "connections", "disconnect", "history", "history_remove", "info", "invalidate_user_tokens",
    "presence", "presence_stats", "publish", "refresh", "revoke_token", "subscribe", "unsubscribe",
}  # fmt: skip


class Asking:
    """The asynchronous client, used as the other one is."""

    def __init__(self, url, key):
        self.loop = asyncio.new_event_loop()
        self.client = self.loop.run_until_complete(self.start(url, key))

    async def start(self, url, key):
        return cent.AsyncClient(url, key, timeout=PATIENCE)

    def __getattr__(self, method):
        return lambda request: self.loop.run_until_complete(getattr(self.client, method)(request))

    def close(self):
        self.loop.run_until_complete(self.client.close())
        self.loop.close()


@pytest.fixture(params=["sync", "async"])
def client_of(request):
    """Makes clients of one kind."""
    made = []

    def make(server, key="k"):
        url = f"http://{server.host}:{server.port}/api"
        kind = Asking if request.param == "async" else lambda url, key: cent.Client(url, key, timeout=PATIENCE)
        made.append(kind(url, key))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def server(serve, tmp_path):
    config = tmp_path / "myriad.toml"
    config.write_text(CONFIG)
    return serve("--config", str(config), dev=False)


class Visitor:
    """A connected client, which notes what it is told."""

    def __init__(self, server, user="42", channel="chat:index", **claims):
        self.socket = server.client("/connection/websocket")
        self.unread = []
        claims = {"sub": user, "info": {"name": "Ada"}, "meta": {"device": "ios"}, "iat": int(time.time()), **claims}
        self.id = self.call(1, connect={"token": token(claims)})["connect"]["client"]
        self.position = self.call(2, subscribe={"channel": channel})["subscribe"]

    def next(self, what):
        """The next line of which something is true; those before it are kept. Answers pings."""
        while True:
            for line in self.unread:
                if what(line):
                    self.unread.remove(line)
                    return line
            self.unread += [json.loads(line) for line in self.socket.recv(PATIENCE).split("\n")]
            if {} in self.unread:
                self.unread.remove({})
                self.socket.send("{}")

    def call(self, number, **command):
        self.socket.send(json.dumps({"id": number, **command}))
        reply = self.next(lambda line: line.get("id") == number)
        assert "error" not in reply, reply
        return reply

    def push(self, kind):
        return self.next(lambda line: kind in line.get("push", {}))["push"]

    def closed(self):
        """The code and the reason with which its connection ends."""
        with pytest.raises(ConnectionClosed):
            self.next(lambda line: False)
        return self.socket.close_code, self.socket.close_reason


def test_its_methods_are_known():
    for client in [cent.Client, cent.AsyncClient]:
        methods = {name for name, _ in inspect.getmembers(client, inspect.isfunction) if not name.startswith("_")}
        assert methods - {"close"} == PRESENT | ABSENT


def test_publications(server, client_of):
    client, visitor = client_of(server), Visitor(server)
    first = client.publish(dto.PublishRequest(channel="chat:index", data={"n": 1}, tags={"lang": "en"}, idempotency_key="a"))
    assert first.offset == 1 and first.epoch
    again = client.publish(dto.PublishRequest(channel="chat:index", data={"n": 2}, idempotency_key="a"))
    assert again == first
    kept_by_nobody = client.publish(dto.PublishRequest(channel="chat:index", data={"n": 3}, skip_history=True))
    assert kept_by_nobody.offset == 0
    told = [visitor.push("pub")["pub"]["data"] for _ in range(2)]
    assert told == [{"n": 1}, {"n": 3}]
    # Fields that the library does not list are sent as well.
    version = client.publish(dto.PublishRequest(channel="chat:index", data=4, version=7, version_epoch="x", delta=True))
    assert version.offset == 2
    client.publish(dto.PublishRequest(channel="chat:bytes", data=None, b64data="AP8="))

    sent = client.broadcast(dto.BroadcastRequest(channels=["chat:index", "nowhere:a", "plain"], data=[5], tags={"a": "b"}))
    assert [one.error and one.error.code for one in sent.responses] == [None, 102, None]
    assert sent.responses[0].result.offset == 3 and sent.responses[2].result.offset == 0


def test_what_channels_keep(server, client_of):
    client = client_of(server)
    for number in range(1, 4):
        client.publish(dto.PublishRequest(channel="chat:index", data=number, tags={"n": str(number)}))
    position = client.history(dto.HistoryRequest(channel="chat:index"))
    assert (position.publications, position.offset) == ([], 3) and position.epoch
    whole = client.history(dto.HistoryRequest(channel="chat:index", limit=-1))
    assert [(one.offset, one.data, one.tags) for one in whole.publications] == [(n, n, {"n": str(n)}) for n in (1, 2, 3)]
    since = dto.StreamPosition(offset=1, epoch=position.epoch)
    later = client.history(dto.HistoryRequest(channel="chat:index", limit=1, since=since))
    assert [one.offset for one in later.publications] == [2]
    newest = client.history(dto.HistoryRequest(channel="chat:index", limit=1, reverse=True))
    assert [one.offset for one in newest.publications] == [3]
    with pytest.raises(CentApiResponseError) as lost:
        client.history(dto.HistoryRequest(channel="chat:index", since=dto.StreamPosition(offset=1, epoch="other")))
    assert lost.value.code == 112
    client.history_remove(dto.HistoryRemoveRequest(channel="chat:index"))
    assert client.history(dto.HistoryRequest(channel="chat:index", limit=-1)).publications == []


def test_who_is_there(server, client_of):
    client, visitor = client_of(server), Visitor(server, jti="t1")
    Visitor(server, "43", "plain")
    there = client.presence(dto.PresenceRequest(channel="chat:index")).presence
    assert {name: (one.user, one.client, one.conn_info) for name, one in there.items()} == {
        visitor.id: ("42", visitor.id, {"name": "Ada"})
    }
    stats = client.presence_stats(dto.PresenceStatsRequest(channel="chat:index"))
    assert (stats.num_clients, stats.num_users) == (1, 1)
    channels = client.channels(dto.ChannelsRequest())
    assert {name: one.num_clients for name, one in channels.channels.items()} == {"chat:index": 1, "plain": 1}
    assert list(client.channels(dto.ChannelsRequest(pattern="chat:*")).channels) == ["chat:index"]
    node = client.info(dto.InfoRequest()).nodes[0]
    assert (node.num_clients, node.num_users, node.num_subs, node.num_channels) == (2, 2, 2, 2)
    assert node.uid and node.name and node.version

    found = client.connections(dto.ConnectionsRequest(user="42", expression="")).connections
    assert list(found) == [visitor.id]
    one = found[visitor.id]
    assert (one.user, one.transport, one.protocol) == ("42", "websocket", "json")
    assert list(one.state.channels) == ["chat:index"] and one.state.meta == {"device": "ios"}
    assert one.state.connection_token.uid == "t1" and one.state.connection_token.issued_at
    with pytest.raises(CentApiResponseError) as refused:
        client.connections(dto.ConnectionsRequest(user="42", expression="true"))
    assert refused.value.code == 107


def test_what_is_done_to_users(server, client_of):
    client, visitor = client_of(server), Visitor(server)
    client.publish(dto.PublishRequest(channel="chat:room", data="missed"))
    override = dto.ChannelOptionsOverride(presence=dto.BoolValue(value=True), force_recovery=dto.BoolValue(value=True))
    epoch = client.history(dto.HistoryRequest(channel="chat:room")).epoch
    client.subscribe(
        dto.SubscribeRequest(
            user="42", channel="chat:room", info={"role": "guest"}, client=visitor.id, session=visitor.id, data={"topic": "tea"},
            recover_since=dto.StreamPosition(offset=0, epoch=epoch), override=override,
        )
    )  # fmt: skip
    told = visitor.push("subscribe")
    assert (told["channel"], told["subscribe"]["data"]) == ("chat:room", {"topic": "tea"})
    assert visitor.push("pub")["pub"]["data"] == "missed"
    there = client.presence(dto.PresenceRequest(channel="chat:room")).presence
    assert there[visitor.id].chan_info == {"role": "guest"}
    client.refresh(dto.RefreshRequest(user="42", client=visitor.id, expire_at=int(time.time()) + 600))
    assert 0 < visitor.push("refresh")["refresh"]["ttl"] <= 600
    client.unsubscribe(dto.UnsubscribeRequest(user="42", channel="chat:room", client=visitor.id))
    assert visitor.push("unsubscribe")["unsubscribe"]["code"] == 2000
    stays = Visitor(server)
    client.disconnect(
        dto.DisconnectRequest(user="42", whitelist=[stays.id], disconnect=dto.Disconnect(code=4000, reason="come back"))
    )
    assert visitor.closed() == (4000, "come back")
    client.refresh(dto.RefreshRequest(user="42", expired=True))
    assert stays.closed()[0] == 3005
    # Nobody is left, which is no error.
    client.disconnect(dto.DisconnectRequest(user="42"))


def test_tokens_that_count_no_more(server, client_of):
    client, later = client_of(server), int(time.time()) + 600
    one, other, third = (Visitor(server, "42", jti=name) for name in ("one", "other", "third"))
    client.revoke_token(dto.RevokeTokenRequest(uid="one", expire_at=later))
    assert one.closed()[0] == 3500
    client.revoke_token(dto.RevokeTokenRequest(uid="other"))
    assert other.closed()[0] == 3500
    client.invalidate_user_tokens(dto.InvalidateUserTokensRequest(user="42", issued_before=later, expire_at=later))
    assert third.closed()[0] == 3500


def test_a_batch_has_every_method(server, client_of):
    client, later = client_of(server), int(time.time()) + 600
    Visitor(server)
    for parallel in (None, True):
        requests = [
            dto.PublishRequest(channel="chat:index", data=1),
            dto.BroadcastRequest(channels=["chat:index", "nowhere:a"], data=2),
            dto.HistoryRequest(channel="chat:index", limit=-1),
            dto.HistoryRemoveRequest(channel="chat:other"),
            dto.PresenceRequest(channel="chat:index"),
            dto.PresenceStatsRequest(channel="chat:index"),
            dto.ChannelsRequest(),
            dto.InfoRequest(),
            dto.ConnectionsRequest(user="42", expression=""),
            dto.SubscribeRequest(user="42", channel="chat:room"),
            dto.UnsubscribeRequest(user="42", channel="chat:room"),
            dto.RefreshRequest(user="42", expire_at=later),
            dto.DisconnectRequest(user="43"),
            dto.RevokeTokenRequest(uid="x", expire_at=later),
            dto.InvalidateUserTokensRequest(user="43", expire_at=later),
        ]
        replies = client.batch(dto.BatchRequest(requests=requests, parallel=parallel)).replies
        assert [type(reply) for reply in replies] == [request.__returning__ for request in requests]
        assert replies[0].offset and replies[1].responses[1].error.code == 102
    assert {request.__api_method__ for request in requests} == PRESENT - {"batch"}


def test_errors(server, client_of):
    client = client_of(server)
    for request, code in [
        (dto.PublishRequest(channel="nowhere:a", data=1), 102),
        (dto.PublishRequest(channel="", data=1), 107),
        (dto.PublishRequest(channel="plain", data=None), 107),
        (dto.PresenceRequest(channel="plain"), 108),
        (dto.HistoryRequest(channel="plain"), 108),
        (dto.RefreshRequest(user="42", expire_at=1), 107),
        (dto.SubscribeRequest(user="42", channel="nowhere:a"), 102),
        (dto.RevokeTokenRequest(uid=""), 107),
    ]:
        with pytest.raises(CentApiResponseError) as refused:
            getattr(client, request.__api_method__)(request)
        assert refused.value.code == code, request
    # Newer libraries send fields that this server does not know.
    client.publish(dto.PublishRequest(channel="plain", data=1, nonsense=True))
    with pytest.raises(CentUnauthorizedError):
        client_of(server, "other").info(dto.InfoRequest())


def test_what_this_server_has_not_is_not_found(server, client_of):
    client = client_of(server)
    for method in ABSENT:
        (request,) = [
            kind
            for kind in vars(dto).values()
            if inspect.isclass(kind) and kind.__dict__.get("__api_method__") == method
        ]
        with pytest.raises(CentTransportError) as refused:
            getattr(client, method)(request.model_construct())
        assert refused.value.status_code == 404, method
