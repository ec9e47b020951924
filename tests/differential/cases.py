"""What is played at both servers: tables of steps.

A case of a client with commands is a list of steps of `drive.Play`; it begins with a connect unless it says otherwise. In values, `$c`
ends the names of this run's channels, `$u` is its user, and `$epoch` the epoch that was heard last.
"""

from drive import token


def c(**command):
    """A command, and its reply."""
    return ("command", command)


def api(method, **body):
    return ("api", method, body)


def made(**claims):
    """A token that is made when the case runs, because its names are."""
    return lambda play: token(**{key: play.fill(value) for key, value in claims.items()})


def forged(secret="another secret of the tests, 32 bytes", header=None, **claims):
    return lambda play: token(secret, header, **{key: play.fill(value) for key, value in claims.items()})


ME = made(sub="$u", exp=600)
CONNECT = c(connect={"token": ME})
ANONYMOUS = c(connect={})
DATA = {"text": "hello"}


def publish(channel, data=DATA, **more):
    return c(publish={"channel": channel, "data": data, **more})


def subscribe(channel, **more):
    return c(subscribe={"channel": channel, **more})


def history(channel, **more):
    return c(history={"channel": channel, **more})


CONNECTS = {
    "token": [CONNECT],
    "token without expiry": [c(connect={"token": made(sub="$u")})],
    "token with expire_at 0": [c(connect={"token": made(sub="$u", exp=600, expire_at=0)})],
    "anonymous": [ANONYMOUS],
    "anonymous token": [c(connect={"token": made(exp=600)})],
    "empty token": [c(connect={"token": ""})],
    "name and version": [c(connect={"name": "a name", "version": "1.2", "data": {"a": 1}})],
    "expired": [c(connect={"token": made(sub="$u", exp=-600)})],
    "not yet valid": [c(connect={"token": made(sub="$u", nbf=9_999_999_999)})],
    "wrong secret": [c(connect={"token": forged(sub="$u")})],
    "unknown algorithm": [c(connect={"token": forged(header={"alg": "HS999"}, sub="$u")})],
    "algorithm none": [c(connect={"token": forged(header={"alg": "none"}, sub="$u")})],
    "algorithm without key": [c(connect={"token": forged(header={"alg": "RS256"}, sub="$u")})],
    "no token at all": [c(connect={"token": "abc"})],
    "two parts": [c(connect={"token": "abc.def"})],
    "claims of wrong types": [c(connect={"token": made(sub=7)})],
    "subscription token": [c(connect={"token": made(sub="$u", channel="open:$c")})],
    "channels": [c(connect={"token": made(sub="$u", channels=["open:$c", "plain:$c"])})],
    "channels with recovery": [c(connect={"token": made(sub="$u", channels=["rec:$c"])})],
    "channels of no namespace": [c(connect={"token": made(sub="$u", channels=["nowhere:$c"])})],
    "channels, one of no namespace": [c(connect={"token": made(sub="$u", channels=["open:$c", "nowhere:$c"])})],
    "channels beyond the limit": [c(connect={"token": made(sub="$u", channels=[f"open:{n}$c" for n in range(6)])})],
    "channel with an empty name": [c(connect={"token": made(sub="$u", channels=[""])})],
    "channel twice": [c(connect={"token": made(sub="$u", channels=["open:$c", "open:$c"])})],
    "channels null": [c(connect={"token": made(sub="$u", channels=None)})],
    "subs": [c(connect={"token": made(sub="$u", subs={"open:$c": {"data": {"a": 1}, "info": {"b": 2}}})})],
    "subs of no namespace": [c(connect={"token": made(sub="$u", subs={"nowhere:$c": {}})})],
    "subs with override": [c(connect={"token": made(sub="$u", subs={"open:$c": {"override": {"force_recovery": {"value": True}}}})})],
    "subs of the client": [c(connect={"token": ME, "subs": {"open:$c": {}}})],
    "subs of the client with recovery": [c(connect={"token": ME, "subs": {"rec:$c": {"recover": True, "offset": 0, "epoch": "_"}}})],
    "subs of the client of no namespace": [c(connect={"token": ME, "subs": {"nowhere:$c": {}}})],
    "subs of the client that are private": [c(connect={"token": ME, "subs": {"$$c": {}}})],
    "subs of the client that are shut": [c(connect={"token": ME, "subs": {"shut:$c": {}}})],
    "subs of the client that does not recover": [c(connect={"token": ME, "subs": {"plain:$c": {"recover": True, "offset": 3, "epoch": "x"}}})],
    "subs of the client and of the token": [
        c(connect={"token": made(sub="$u", channels=["rec:$c"]), "subs": {"rec:$c": {"recover": True, "offset": 0, "epoch": ""}}})
    ],
    "info": [c(connect={"token": made(sub="$u", info={"name": "x"})}), subscribe("open:$c"), c(presence={"channel": "open:$c"})],
    "b64info": [c(connect={"token": made(sub="$u", b64info="eyJhIjoxfQ==")}), subscribe("open:$c"), c(presence={"channel": "open:$c"})],
    "twice": [CONNECT, ("unanswered", {"id": 9, "connect": {}})],
    "with a subscribe in one frame": [("command", {"connect": {"token": ME}}, {"subscribe": {"channel": "open:$c"}})],
    "unknown fields": [c(connect={"token": ME, "unknown": "x"})],
    "headers": [c(connect={"token": ME, "headers": {"a": "b"}})],
    "flag": [c(connect={"token": ME, "flag": 2})],
}

SUBSCRIBES = {
    "open": [CONNECT, subscribe("open:$c")],
    "plain": [CONNECT, subscribe("plain:$c")],
    "no namespace": [CONNECT, subscribe("$c")],
    "anonymous": [ANONYMOUS, subscribe("open:$c")],
    "anonymous where users only": [ANONYMOUS, subscribe("users:$c")],
    "unknown namespace": [CONNECT, subscribe("nowhere:$c")],
    "empty namespace": [CONNECT, subscribe(":$c")],
    "shut": [CONNECT, subscribe("shut:$c")],
    "twice": [CONNECT, subscribe("open:$c"), subscribe("open:$c")],
    "empty": [CONNECT, subscribe("")],
    "no channel": [CONNECT, c(subscribe={})],
    "255 bytes": [CONNECT, subscribe("open:" + "x" * 250)],
    "256 bytes": [CONNECT, subscribe("open:" + "x" * 251)],
    "not ASCII": [CONNECT, subscribe("open:ü$c")],
    "a space": [CONNECT, subscribe("open: $c")],
    "regex holds": [CONNECT, subscribe("named:abc")],
    "regex does not hold": [CONNECT, subscribe("named:ABC")],
    "limit": [CONNECT, *[subscribe(f"open:{n}$c") for n in range(6)]],
    "private": [CONNECT, subscribe("$$c")],
    "private, of no namespace": [CONNECT, subscribe("$nowhere:$c")],
    "private with token": [CONNECT, subscribe("$open:$c", token=made(sub="$u", channel="$open:$c", exp=600))],
    "private with token for ever": [CONNECT, subscribe("$open:$c", token=made(sub="$u", channel="$open:$c"))],
    "token for what is shut": [CONNECT, subscribe("shut:$c", token=made(sub="$u", channel="shut:$c"))],
    "token with data": [CONNECT, subscribe("shut:$c", token=made(sub="$u", channel="shut:$c", data={"a": 1}, info={"b": 2}))],
    "token with override": [
        CONNECT, subscribe("open:$c", token=made(sub="$u", channel="open:$c", override={"force_recovery": {"value": True}}))
    ],
    "token expired": [CONNECT, subscribe("open:$c", token=made(sub="$u", channel="open:$c", exp=-600))],
    "token of another user": [CONNECT, subscribe("open:$c", token=made(sub="another", channel="open:$c"))],
    "token of another channel": [CONNECT, subscribe("open:$c", token=made(sub="$u", channel="open:another"))],
    "token without channel": [CONNECT, subscribe("open:$c", token=made(sub="$u"))],
    "token without user": [CONNECT, subscribe("open:$c", token=made(channel="open:$c"))],
    "token forged": [CONNECT, subscribe("open:$c", token=forged(sub="$u", channel="open:$c"))],
    "token garbage": [CONNECT, subscribe("open:$c", token="garbage")],
    "token for no namespace": [CONNECT, subscribe("nowhere:$c", token=made(sub="$u", channel="nowhere:$c"))],
    "limited to me": [CONNECT, subscribe("limited:a#$u")],
    "limited to me and others": [CONNECT, subscribe("limited:a#x,$u")],
    "limited to others": [CONNECT, subscribe("limited:a#x,y")],
    "limited to nobody": [CONNECT, subscribe("limited:a#")],
    "no limits, with a #": [CONNECT, subscribe("open:a#x")],
    "map": [CONNECT, subscribe("open:$c", type=1)],
    "unknown type": [CONNECT, subscribe("open:$c", type=77)],
    "delta": [CONNECT, subscribe("rec:$c", delta="fossil")],
    "delta where not allowed": [CONNECT, subscribe("open:$c", delta="fossil")],
    "delta unknown": [CONNECT, subscribe("rec:$c", delta="other")],
    "filter": [
        CONNECT, subscribe("rec:$c", tf={"key": "a", "cmp": "eq", "val": "1"}),
        api("publish", channel="rec:$c", data=1, tags={"a": "2"}), api("publish", channel="rec:$c", data=2, tags={"a": "1"}), ("heard", 1),
    ],
    "filter not allowed": [CONNECT, subscribe("open:$c", tf={"key": "a", "cmp": "eq", "val": "1"})],
    "filter of an unknown comparison": [CONNECT, subscribe("rec:$c", tf={"key": "a", "cmp": "like", "val": "1"})],
    "filter of an unknown operation": [CONNECT, subscribe("rec:$c", tf={"op": "xor", "nodes": [{"key": "a", "cmp": "ex"}]})],
    "filter without value": [CONNECT, subscribe("rec:$c", tf={"key": "a", "cmp": "eq"})],
    "filter empty": [CONNECT, subscribe("rec:$c", tf={})],
    "filter and without nodes": [CONNECT, subscribe("rec:$c", tf={"op": "and"})],
    "positioned wish": [CONNECT, subscribe("wish:$c", positioned=True)],
    "recoverable wish": [CONNECT, subscribe("wish:$c", recoverable=True)],
    "recoverable wish where not allowed": [CONNECT, subscribe("plain:$c", recoverable=True, positioned=True)],
    "recoverable wish of who may read history": [CONNECT, subscribe("open:$c", recoverable=True)],
    "join_leave wish": [CONNECT, subscribe("open:$c", join_leave=True)],
    "positions": [CONNECT, subscribe("pos:$c")],
    "unknown fields": [CONNECT, subscribe("open:$c", unknown="x")],
    "data": [CONNECT, subscribe("open:$c", data={"a": 1})],
    "flag for numeric ids": [CONNECT, subscribe("open:$c", flag=1), api("publish", channel="open:$c", data=1), ("heard", 1)],
    "joins": [CONNECT, subscribe("joins:$c"), ("heard", 1)],
}


def after(count, *steps, namespace="rec", **more):
    """A channel with so many publications, whose epoch the client knows."""
    published = [api("publish", channel=f"{namespace}:$c", data={"n": n}) for n in range(count)]
    return [CONNECT, *published, history(f"{namespace}:$c"), *steps]


RECOVERIES = {
    "all": after(3, subscribe("rec:$c", recover=True, epoch="$epoch")),
    "some": after(3, subscribe("rec:$c", recover=True, epoch="$epoch", offset=1)),
    "nothing new": after(3, subscribe("rec:$c", recover=True, epoch="$epoch", offset=3)),
    "of the future": after(3, subscribe("rec:$c", recover=True, epoch="$epoch", offset=9)),
    "wrong epoch": after(3, subscribe("rec:$c", recover=True, epoch="other", offset=1)),
    "epoch _": after(3, subscribe("rec:$c", recover=True, epoch="_")),
    "no epoch": after(3, subscribe("rec:$c", recover=True, offset=1)),
    "wrong epoch, error wished": after(3, subscribe("rec:$c", recover=True, epoch="other", offset=1, flag=2)),
    "too far": after(5, subscribe("small:$c", recover=True, epoch="$epoch", offset=1), namespace="small"),
    "just kept": after(5, subscribe("small:$c", recover=True, epoch="$epoch", offset=3), namespace="small"),
    "too far, error wished": after(5, subscribe("small:$c", recover=True, epoch="$epoch", offset=1, flag=2), namespace="small"),
    "empty channel": [CONNECT, subscribe("rec:$c", recover=True)],
    "empty channel, wrong epoch": [CONNECT, subscribe("rec:$c", recover=True, epoch="other", offset=4)],
    "without recovery": [CONNECT, subscribe("plain:$c", recover=True, epoch="x", offset=4)],
    "history without recovery": after(3, subscribe("pos:$c", recover=True, epoch="$epoch", offset=1), namespace="pos")[:-2]
    + [subscribe("pos:$c", recover=True, offset=1)],
    "wished": [CONNECT, api("publish", channel="wish:$c", data=1), subscribe("wish:$c", recover=True, recoverable=True)],
    "delta": after(3, subscribe("rec:$c", recover=True, epoch="$epoch", delta="fossil")),
    "filter": after(3, subscribe("rec:$c", recover=True, epoch="$epoch", tf={"key": "a", "cmp": "ex"})),
    "cache": after(3, subscribe("cache:$c", recover=True, epoch="$epoch"), namespace="cache"),
    "cache, nothing new": after(3, subscribe("cache:$c", recover=True, epoch="$epoch", offset=3), namespace="cache"),
    "cache, wrong epoch": after(3, subscribe("cache:$c", recover=True, epoch="other", offset=3), namespace="cache"),
    "cache, empty": [CONNECT, subscribe("cache:$c", recover=True)],
    "after removal": after(
        3, api("history_remove", channel="rec:$c"), subscribe("rec:$c", recover=True, epoch="$epoch", offset=1)
    ),
    "live after": after(
        2, subscribe("rec:$c", recover=True, epoch="$epoch", offset=1), api("publish", channel="rec:$c", data={"n": 2}), ("heard", 1)
    ),
}

PUBLISHES = {
    "heard": [CONNECT, subscribe("open:$c"), publish("open:$c"), ("heard", 1)],
    "first has the epoch": [CONNECT, subscribe("rec:$c"), publish("rec:$c"), publish("rec:$c"), ("heard", 2)],
    "first of positions": [CONNECT, subscribe("pos:$c"), publish("pos:$c"), ("heard", 1)],
    "no history": [CONNECT, subscribe("plain:$c"), publish("plain:$c"), ("heard", 1)],
    "without subscription": [CONNECT, publish("open:$c")],
    "anonymous": [ANONYMOUS, subscribe("open:$c"), publish("open:$c"), ("heard", 1)],
    "anonymous where users only": [ANONYMOUS, publish("users:$c")],
    "subscribers only": [CONNECT, publish("members:$c")],
    "subscribers only, and subscribed": [CONNECT, subscribe("members:$c"), publish("members:$c"), ("heard", 1)],
    "shut": [CONNECT, publish("shut:$c")],
    "unknown namespace": [CONNECT, publish("nowhere:$c")],
    "empty channel": [CONNECT, publish("")],
    "no channel": [CONNECT, c(publish={"data": 1})],
    "no data": [CONNECT, c(publish={"channel": "open:$c"})],
    "null": [CONNECT, subscribe("open:$c"), publish("open:$c", None)],
    "false": [CONNECT, subscribe("open:$c"), publish("open:$c", False), ("heard", 1)],
    "a number": [CONNECT, subscribe("open:$c"), publish("open:$c", 1), ("heard", 1)],
    "a text": [CONNECT, subscribe("open:$c"), publish("open:$c", "text"), ("heard", 1)],
    "an empty text": [CONNECT, subscribe("open:$c"), publish("open:$c", ""), ("heard", 1)],
    "a list": [CONNECT, subscribe("open:$c"), publish("open:$c", [1, {}]), ("heard", 1)],
    "objects only": [CONNECT, publish("object:$c", {})],
    "objects only, a list": [CONNECT, publish("object:$c", [])],
    "objects only, null": [CONNECT, publish("object:$c", None)],
    "anything, nothing": [CONNECT, c(publish={"channel": "anything:$c"})],
    "type": [CONNECT, publish("open:$c", type=1)],
    "unknown type": [CONNECT, publish("open:$c", type=9)],
    "key": [CONNECT, publish("open:$c", key="k")],
    "removed": [CONNECT, publish("open:$c", removed=True)],
    "unknown fields": [CONNECT, publish("open:$c", unknown="x")],
    "long name": [CONNECT, publish("open:" + "x" * 300)],
    "not ASCII": [CONNECT, publish("open:ü$c")],
    "private": [CONNECT, publish("$open:$c")],
    "in the frame of its subscribe": [
        CONNECT, ("command", {"subscribe": {"channel": "open:$c"}}, {"publish": {"channel": "open:$c", "data": 1}}), ("heard", 1)
    ],
    "by the API": [CONNECT, subscribe("open:$c"), api("publish", channel="open:$c", data=1, tags={"a": "b"}), ("heard", 1)],
    "null by the API": [CONNECT, subscribe("open:$c"), api("publish", channel="open:$c", data=None), api("publish", channel="open:$c", data=1), ("heard", 2)],
    "bytes by the API that are JSON": [CONNECT, subscribe("open:$c"), api("publish", channel="open:$c", b64data="eyJhIjoxfQ=="), ("heard", 1)],
    "delta": [
        CONNECT, subscribe("rec:$c", delta="fossil"),
        *[api("publish", channel="rec:$c", data={"text": "a text that is long enough for a delta " * 3, "n": n}, delta=True) for n in (1, 2)],
        ("heard", 2),
    ],
}

OTHERS = {
    "unsubscribe": [CONNECT, subscribe("open:$c"), c(unsubscribe={"channel": "open:$c"}), subscribe("open:$c")],
    "unsubscribe, not subscribed": [CONNECT, c(unsubscribe={"channel": "open:$c"})],
    "unsubscribe, unknown namespace": [CONNECT, c(unsubscribe={"channel": "nowhere:$c"})],
    "unsubscribe, empty": [CONNECT, c(unsubscribe={"channel": ""})],
    "unsubscribe, no channel": [CONNECT, c(unsubscribe={})],
    "history": after(3),
    "history, some": after(3, history("rec:$c", limit=2)),
    "history, all": after(3, history("rec:$c", limit=-1)),
    "history, reverse": after(3, history("rec:$c", limit=2, reverse=True)),
    "history, since": after(3, history("rec:$c", limit=5, since={"offset": 1, "epoch": "$epoch"})),
    "history, since without epoch": after(3, history("rec:$c", limit=5, since={"offset": 1})),
    "history, since wrong epoch": after(3, history("rec:$c", limit=5, since={"offset": 1, "epoch": "other"})),
    "history, since the future": after(3, history("rec:$c", limit=5, since={"offset": 9, "epoch": "$epoch"})),
    "history, since, reverse": after(3, history("rec:$c", limit=5, since={"offset": 3, "epoch": "$epoch"}, reverse=True)),
    "history, since 0, reverse": after(3, history("rec:$c", limit=5, since={"offset": 0, "epoch": "$epoch"}, reverse=True)),
    "history, older than kept": after(5, history("small:$c", limit=5, since={"offset": 1, "epoch": "$epoch"}), namespace="small"),
    "history, never used": [CONNECT, history("rec:$c", limit=2)],
    "history, off": [CONNECT, history("plain:$c")],
    "history, no right": [CONNECT, history("pos:$c")],
    "history, subscribers only": [CONNECT, history("members:$c"), subscribe("members:$c"), history("members:$c", limit=1)],
    "history, unknown namespace": [CONNECT, history("nowhere:$c")],
    "history, empty": [CONNECT, history("")],
    "history, of a client's publication": [CONNECT, publish("rec:$c"), history("rec:$c", limit=1)],
    "history, with tags": [CONNECT, api("publish", channel="rec:$c", data=1, tags={"a": "b"}), history("rec:$c", limit=1)],
    "presence": [CONNECT, subscribe("open:$c"), c(presence={"channel": "open:$c"})],
    "presence of nobody": [CONNECT, c(presence={"channel": "open:$c"})],
    "presence, off": [CONNECT, c(presence={"channel": "plain:$c"})],
    "presence, no right": [CONNECT, c(presence={"channel": "shut:$c"})],
    "presence, subscribers only": [CONNECT, c(presence={"channel": "members:$c"}), subscribe("members:$c"), c(presence={"channel": "members:$c"})],
    "presence, anonymous": [ANONYMOUS, c(presence={"channel": "users:$c"})],
    "presence, unknown namespace": [CONNECT, c(presence={"channel": "nowhere:$c"})],
    "presence, empty": [CONNECT, c(presence={"channel": ""})],
    "presence_stats": [CONNECT, subscribe("open:$c"), c(presence_stats={"channel": "open:$c"})],
    "presence_stats of nobody": [CONNECT, c(presence_stats={"channel": "open:$c"})],
    "presence_stats, off": [CONNECT, c(presence_stats={"channel": "plain:$c"})],
    "presence_stats, unknown namespace": [CONNECT, c(presence_stats={"channel": "nowhere:$c"})],
    "presence_stats, empty": [CONNECT, c(presence_stats={"channel": ""})],
    "rpc": [CONNECT, c(rpc={"method": "m", "data": {}})],
    "rpc, namespace": [CONNECT, c(rpc={"method": "a:m", "data": {}})],
    "rpc, no method": [CONNECT, c(rpc={"data": 1})],
    "send": [CONNECT, ("unanswered", {"send": {"data": {}}})],
    "send with id": [CONNECT, ("unanswered", {"id": 77, "send": {"data": {}}})],
    "ping with id": [CONNECT, ("unanswered", {"id": 77, "ping": {}})],
    "pong without ping": [CONNECT, ("unanswered", {})],
    "command without id": [CONNECT, ("unanswered", {"publish": {"channel": "open:$c", "data": 1}})],
    "no request": [CONNECT, ("unanswered", {"id": 77})],
    "unknown request": [CONNECT, ("unanswered", {"id": 77, "unknown": "x"})],
    "several requests": [CONNECT, ("command", {"publish": {"channel": "open:$c", "data": 1}, "history": {"channel": "rec:$c"}})],
    "refresh": [CONNECT, c(refresh={"token": ME})],
    "refresh without expiry": [CONNECT, c(refresh={"token": made(sub="$u")})],
    "refresh, empty": [CONNECT, c(refresh={"token": ""})],
    "refresh, expired": [CONNECT, c(refresh={"token": made(sub="$u", exp=-600)})],
    "refresh, forged": [CONNECT, c(refresh={"token": forged(sub="$u", exp=600)})],
    "refresh, another user": [CONNECT, c(refresh={"token": made(sub="another", exp=600)})],
    "refresh, other channels": [CONNECT, c(refresh={"token": made(sub="$u", exp=600, channels=["open:$c"])})],
    "refresh of one that does not expire": [ANONYMOUS, c(refresh={"token": made(exp=600)})],
    "sub_refresh": [
        CONNECT, subscribe("open:$c", token=made(sub="$u", channel="open:$c", exp=600)),
        c(sub_refresh={"channel": "open:$c", "token": made(sub="$u", channel="open:$c", exp=900)}),
    ],
    "sub_refresh, not subscribed": [CONNECT, c(sub_refresh={"channel": "open:$c", "token": made(sub="$u", channel="open:$c", exp=900)})],
    "sub_refresh, no token": [CONNECT, subscribe("open:$c"), c(sub_refresh={"channel": "open:$c"})],
    "sub_refresh, forged": [CONNECT, subscribe("open:$c"), c(sub_refresh={"channel": "open:$c", "token": forged(sub="$u", channel="open:$c")})],
    "sub_refresh, expired": [
        CONNECT, subscribe("open:$c"), c(sub_refresh={"channel": "open:$c", "token": made(sub="$u", channel="open:$c", exp=-600)})
    ],
    "sub_refresh, another channel": [
        CONNECT, subscribe("open:$c"), c(sub_refresh={"channel": "open:$c", "token": made(sub="$u", channel="open:x", exp=600)})
    ],
    "sub_refresh, another user": [
        CONNECT, subscribe("open:$c"), c(sub_refresh={"channel": "open:$c", "token": made(sub="x", channel="open:$c", exp=600)})
    ],
    "sub_refresh, empty channel": [CONNECT, c(sub_refresh={"channel": "", "token": "x"})],
}

BY_API = {
    "subscribe": [CONNECT, api("subscribe", user="$u", channel="open:$c"), ("heard", 1)],
    "subscribe with data": [CONNECT, api("subscribe", user="$u", channel="open:$c", data={"a": 1}, info={"b": 1}), ("heard", 1)],
    "subscribe with recovery": [CONNECT, api("subscribe", user="$u", channel="rec:$c"), ("heard", 1)],
    "subscribe with recover_since": [
        CONNECT, api("publish", channel="rec:$c", data=1),
        api("subscribe", user="$u", channel="rec:$c", recover_since={"offset": 1, "epoch": ""}), ("heard", 1),
    ],
    "subscribe twice": [
        CONNECT, api("subscribe", user="$u", channel="open:$c"), api("subscribe", user="$u", channel="open:$c"), ("heard", 1)
    ],
    "subscribe and the client's own": [CONNECT, api("subscribe", user="$u", channel="open:$c"), ("heard", 1), subscribe("open:$c")],
    "subscribe, unknown namespace": [CONNECT, api("subscribe", user="$u", channel="nowhere:$c")],
    "unsubscribe": [CONNECT, subscribe("open:$c"), api("unsubscribe", user="$u", channel="open:$c"), ("heard", 1), subscribe("open:$c")],
    "unsubscribe, not subscribed": [CONNECT, api("unsubscribe", user="$u", channel="open:$c"), ("heard", 1)],
    "unsubscribe from all": [CONNECT, subscribe("open:$c"), api("unsubscribe", user="$u", channel=""), ("heard", 1)],
    "disconnect": [CONNECT, api("disconnect", user="$u"), ("ends",)],
    "disconnect with a code": [CONNECT, api("disconnect", user="$u", disconnect={"code": 4000, "reason": "own"}), ("ends",)],
    "disconnect with a final code": [CONNECT, api("disconnect", user="$u", disconnect={"code": 4500, "reason": "own"}), ("ends",)],
    "disconnect with 3000": [CONNECT, api("disconnect", user="$u", disconnect={"code": 3000, "reason": "own"}), ("ends",)],
    "disconnect with code 0": [CONNECT, api("disconnect", user="$u", disconnect={"code": 0, "reason": ""}), ("ends",)],
    "disconnect with an empty object": [CONNECT, api("disconnect", user="$u", disconnect={}), ("ends",)],
    "disconnect with null": [CONNECT, api("disconnect", user="$u", disconnect=None), ("ends",)],
    "refresh": [CONNECT, api("refresh", user="$u", expire_at=9_999_999_999), ("heard", 1)],
    "refresh, expired": [CONNECT, api("refresh", user="$u", expired=True), ("ends",)],
    "broadcast": [CONNECT, subscribe("open:$c"), api("broadcast", channels=["open:$c", "nowhere:$c"], data=1), ("heard", 1)],
    "channels": [CONNECT, subscribe("open:$c"), api("channels", pattern="open:$c")],
    "presence": [CONNECT, subscribe("open:$c"), api("presence", channel="open:$c"), api("presence_stats", channel="open:$c")],
    "history": [CONNECT, publish("open:$c"), api("history", channel="open:$c", limit=1)],
}

# Cases of all encodings and transports with commands.
COMMANDS = {
    f"{table}: {name}": steps
    for table, cases in {
        "connect": CONNECTS, "subscribe": SUBSCRIBES, "recover": RECOVERIES, "publish": PUBLISHES, "other": OTHERS, "by API": BY_API,
    }.items()
    for name, steps in cases.items()
}

# What only JSON can say, and only WebSocket can carry.
RAW = {
    f"raw: {name}": steps
    for name, steps in {
        "no JSON": [("first", "no JSON")],
        "a list": [("first", "[]")],
        "null": [("first", "null")],
        "a text": [("first", '"text"')],
        "empty frame": [("first", "")],
        "line feed": [("first", "\n")],
        "truncated": [("first", '{"id":1,"connect":{')],
        "pong before connect": [("first", "{}")],
        "subscribe before connect": [("first", '{"id":1,"subscribe":{"channel":"open:x"}}')],
        "unknown before connect": [("first", '{"id":1,"unknown":{}}')],
        "id is a text": [("first", '{"id":"1","connect":{}}')],
        "id is negative": [("first", '{"id":-1,"connect":{}}')],
        "id is a fraction": [("first", '{"id":1.5,"connect":{}}')],
        "id is too big": [("first", '{"id":4294967296,"connect":{}}')],
        "id 0": [("first", '{"id":0,"connect":{}}')],
        "connect null": [("first", '{"id":1,"connect":null}')],
        "connect a list": [("first", '{"id":1,"connect":[]}')],
        "token a number": [("first", '{"id":1,"connect":{"token":1}}')],
        "token null": [("first", '{"id":1,"connect":{"token":null}}')],
        "subs null": [("first", '{"id":1,"connect":{"subs":null}}')],
        "subs a list": [("first", '{"id":1,"connect":{"subs":[]}}')],
        "field twice": [("first", '{"id":1,"id":1,"connect":{}}')],
        "spaces": [("first", ' { "id" : 1 , "connect" : { } } ')],
        "ends with a line feed": [("first", '{"id":1,"connect":{}}\n')],
        "two line feeds": [("first", '{"id":1,"connect":{}}\n\n{"id":2,"ping":{}}')],
        "upper case names": [("first", '{"ID":1,"CONNECT":{}}')],
        "not UTF-8 escapes": [("first", '{"id":1,"connect":{"name":"\\ud800"}}')],
        "channel a number": [ANONYMOUS, ("raw", '{"id":9,"subscribe":{"channel":1}}')],
        "channel null": [ANONYMOUS, ("raw", '{"id":9,"subscribe":{"channel":null}}')],
        "recover a text": [ANONYMOUS, ("raw", '{"id":9,"subscribe":{"channel":"open:x","recover":"yes"}}')],
        "offset negative": [ANONYMOUS, ("raw", '{"id":9,"subscribe":{"channel":"rec:x","recover":true,"offset":-1}}')],
        "offset a text": [ANONYMOUS, ("raw", '{"id":9,"subscribe":{"channel":"rec:x","recover":true,"offset":"1"}}')],
        "limit a text": [ANONYMOUS, ("raw", '{"id":9,"history":{"channel":"rec:x","limit":"1"}}')],
        "limit too big": [ANONYMOUS, ("raw", '{"id":9,"history":{"channel":"rec:x","limit":2147483648}}')],
        "since null": [ANONYMOUS, ("raw", '{"id":9,"history":{"channel":"rec:raw since null","limit":1,"since":null}}')],
        "publish null": [ANONYMOUS, ("raw", '{"id":9,"publish":null}')],
        "empty line between": [ANONYMOUS, ("raw", '{"id":8,"ping":{}}\n\n{"id":9,"ping":{}}')],
        "no JSON later": [ANONYMOUS, ("raw", "no JSON")],
    }.items()
}

# Played where everybody needs a token with a user.
STRICT = {
    "strict: token": [CONNECT],
    "strict: no token": [("first", '{"id":1,"connect":{}}')],
    "strict: token without user": [c(connect={"token": made(exp=600)})],
    "strict: token with an empty user": [c(connect={"token": made(sub="", exp=600)})],
    "strict: expired": [c(connect={"token": made(sub="$u", exp=-600)})],
}

# Connect requests of clients without commands, and what the API does then: a method, its body, and how many pushes that makes.
UNI = {
    f"uni: {name}": case
    for name, case in {
        "token": ({"token": ME}, []),
        "anonymous": ({}, []),
        "empty": ("", []),
        "null": ("null", []),
        "no JSON": ("no JSON", []),
        "a list": ("[]", []),
        "a command": ('{"id":1,"connect":{}}', []),
        "unknown fields": ({"token": ME, "unknown": 1}, []),
        "token a number": ({"token": 1}, []),
        "expired": ({"token": made(sub="$u", exp=-600)}, []),
        "forged": ({"token": forged(sub="$u")}, []),
        "garbage": ({"token": "garbage"}, []),
        "channels": ({"token": made(sub="$u", channels=["open:$c"])}, [("publish", {"channel": "open:$c", "data": {"a": 1}}, 1)]),
        "channels with recovery": ({"token": made(sub="$u", channels=["rec:$c"])}, [("publish", {"channel": "rec:$c", "data": 1}, 1)]),
        "channels of no namespace": ({"token": made(sub="$u", channels=["nowhere:$c"])}, []),
        "channels beyond the limit": ({"token": made(sub="$u", channels=[f"open:{n}$c" for n in range(6)])}, []),
        "subs": ({"token": ME, "subs": {"open:$c": {}}}, [("publish", {"channel": "open:$c", "data": None}, 0)]),
        "subs of no namespace": ({"token": ME, "subs": {"nowhere:$c": {}}}, []),
        "subs that are shut": ({"token": ME, "subs": {"shut:$c": {}}}, []),
        "subs with recovery": ({"token": ME, "subs": {"rec:$c": {"recover": True}}}, []),
        "subs that do not recover": ({"token": ME, "subs": {"plain:$c": {"recover": True, "offset": 2}}}, []),
        "subscribe": ({"token": ME}, [("subscribe", {"user": "$u", "channel": "open:$c"}, 1)]),
        "unsubscribe": (
            {"token": made(sub="$u", channels=["open:$c"])}, [("unsubscribe", {"user": "$u", "channel": "open:$c"}, 1)]
        ),
        "refresh": ({"token": ME}, [("refresh", {"user": "$u", "expire_at": 9_999_999_999}, 1)]),
        "disconnect": ({"token": ME}, [("disconnect", {"user": "$u"}, 2)]),
        "disconnect with a code": ({"token": ME}, [("disconnect", {"user": "$u", "disconnect": {"code": 4000, "reason": "own"}}, 2)]),
    }.items()
}

UNI_STRICT = {
    "uni strict: no token": ({}, []),
    "uni strict: token without user": ({"token": made(exp=600)}, []),
}

# Each is a body, or some that are sent one after the other.
API_BODIES = {
    "publish": {
        "good": {"channel": "open:$c", "data": {}},
        "without history": {"channel": "plain:$c", "data": {}},
        "no data": {"channel": "open:$c"},
        "null": {"channel": "open:$c", "data": None},
        "b64data": {"channel": "open:$c", "b64data": "aGVsbG8="},
        "b64data that is none": {"channel": "open:$c", "b64data": "?"},
        "b64data empty": {"channel": "open:$c", "b64data": ""},
        "both": {"channel": "open:$c", "b64data": "aGVsbG8=", "data": {}},
        "tags": {"channel": "open:$c", "data": 1, "tags": {"a": "b"}},
        "tags of numbers": {"channel": "open:$c", "data": 1, "tags": {"a": 1}},
        "tags null": {"channel": "open:$c", "data": 1, "tags": None},
        "skip_history": {"channel": "open:$c", "data": 1, "skip_history": True},
        "skip_history a text": {"channel": "open:$c", "data": 1, "skip_history": "yes"},
        "format": {"channel": "object:$c", "data": []},
        "delta": {"channel": "rec:$c", "data": {}, "delta": True},
        "version": [{"channel": "rec:$c", "data": n, "version": 5} for n in (1, 2)],
        "version without history": {"channel": "plain:$c", "data": 1, "version": 5},
        "version negative": {"channel": "rec:$c", "data": 1, "version": -1},
        "version a text": {"channel": "rec:$c", "data": 1, "version": "1"},
        "idempotency_key": [{"channel": "rec:$c", "data": n, "idempotency_key": "k"} for n in (1, 2)],
    },
    "broadcast": {
        "good": {"channels": ["open:$c", "plain:$c"], "data": 1},
        "no channels": {"data": 1},
        "empty channels": {"channels": [], "data": 1},
        "channels null": {"channels": None, "data": 1},
        "channels a text": {"channels": "open:$c", "data": 1},
        "one unknown": {"channels": ["open:$c", "nowhere:$c"], "data": 1},
        "one empty": {"channels": ["open:$c", ""], "data": 1},
        "no data": {"channels": ["open:$c"]},
    },
    "subscribe": {
        "nobody": {"user": "nobody$c", "channel": "open:$c"},
        "no user": {"channel": "plain:$c"},
        "no channel": {"user": "nobody$c"},
        "with data": {"user": "nobody$c", "channel": "open:$c", "data": 1, "info": {}},
        "bad b64info": {"user": "nobody$c", "channel": "open:$c", "b64info": "?"},
        "expire_at past": {"user": "nobody$c", "channel": "open:$c", "expire_at": 1},
        "recover_since null": {"user": "nobody$c", "channel": "open:$c", "recover_since": None},
        "override": {"user": "nobody$c", "channel": "open:$c", "override": {"presence": {"value": True}}},
        "override of a wrong type": {"user": "nobody$c", "channel": "open:$c", "override": {"presence": True}},
    },
    "unsubscribe": {
        "nobody": {"user": "nobody$c", "channel": "open:$c"},
        "no channel": {"user": "nobody$c"},
        "no user": {"channel": "open:$c"},
        "a client": {"client": "00000000-0000-4000-8000-000000000000", "channel": "open:$c"},
    },
    "disconnect": {
        "nobody": {"user": "nobody$c"},
        "no user, a client": {"client": "00000000-0000-4000-8000-000000000000"},
        "whitelist": {"user": "nobody$c", "whitelist": ["a"]},
        "whitelist a text": {"user": "nobody$c", "whitelist": "a"},
        "code": {"user": "nobody$c", "disconnect": {"code": 4001, "reason": "r"}},
        "code out of range": {"user": "nobody$c", "disconnect": {"code": 100, "reason": "r"}},
        "code a text": {"user": "nobody$c", "disconnect": {"code": "4001"}},
        "reconnect": {"user": "nobody$c", "disconnect": {"code": 4001, "reason": "r", "reconnect": True}},
        "long reason": {"user": "nobody$c", "disconnect": {"code": 4001, "reason": "r" * 200}},
    },
    "refresh": {
        "nobody": {"user": "nobody$c"},
        "expired": {"user": "nobody$c", "expired": True},
        "expire_at": {"user": "nobody$c", "expire_at": 9_999_999_999},
        "expire_at past": {"user": "nobody$c", "expire_at": 1},
        "expire_at a text": {"user": "nobody$c", "expire_at": "1"},
    },
    "presence": {"good": {"channel": "open:$c"}, "off": {"channel": "plain:$c"}},
    "presence_stats": {"good": {"channel": "open:$c"}, "off": {"channel": "plain:$c"}},
    "history": {
        "never used": {"channel": "open:$c"},
        "off": {"channel": "plain:$c"},
        "limit a text": {"channel": "open:$c", "limit": "1"},
        "limit a fraction": {"channel": "open:$c", "limit": 1.5},
        "since": {"channel": "open:$c", "limit": 5, "since": {"offset": 0, "epoch": ""}},
        "since wrong epoch": {"channel": "open:$c", "limit": 5, "since": {"offset": 1, "epoch": "other"}},
        "since null": {"channel": "open:$c", "since": None},
        "since reverse": {"channel": "open:$c", "limit": 5, "reverse": True, "since": {"offset": 0, "epoch": ""}},
    },
    "history_remove": {"good": {"channel": "open:$c"}, "off": {"channel": "plain:$c"}},
    "channels": {
        "pattern": {"pattern": "none-$c*"},
        "pattern a number": {"pattern": 1},
        "pattern that is none": {"pattern": "["},
    },
    "rpc": {"unknown": {"method": "m", "params": {}}, "no method": {}},
    "batch": {
        "good": {"commands": [{"publish": {"channel": "open:$c", "data": 1}}, {"history": {"channel": "open:$c", "limit": 1}}]},
        "parallel": {"commands": [{"presence": {"channel": "open:$c"}}], "parallel": True},
        "empty": {"commands": []},
        "no commands": {},
        "one bad": {"commands": [{"publish": {"channel": "nowhere:$c", "data": 1}}, {"publish": {"channel": "open:$c", "data": 1}}]},
        "one without channel": {"commands": [{"publish": {"data": 1}}, {"publish": {"channel": "open:$c", "data": 1}}]},
        "one of no method": {"commands": [{"nothing": {}}, {"publish": {"channel": "open:$c", "data": 1}}]},
        "one empty": {"commands": [{}, {"publish": {"channel": "open:$c", "data": 1}}]},
        "one null": {"commands": [None, {"publish": {"channel": "open:$c", "data": 1}}]},
        "unknown fields": {"commands": [{"publish": {"channel": "open:$c", "data": 1, "unknown": 2}}]},
        "two methods in one": {"commands": [{"publish": {"channel": "open:$c", "data": 1}, "history": {"channel": "open:$c"}}]},
        "a batch": {"commands": [{"batch": {"commands": []}}]},
        "wrong types": {"commands": [{"publish": {"channel": 1, "data": 1}}]},
    },
}
OF_CHANNELS = ("publish", "subscribe", "unsubscribe", "presence", "presence_stats", "history", "history_remove")
METHODS = (*API_BODIES, "info")


def api_cases():
    """Every method with the bodies that all must stand, and with its own: (method, bodies, key, headers)."""
    good = {"publish": {"channel": "open:$c", "data": 1}, "broadcast": {"channels": ["open:$c"], "data": 1}, "info": {}, "channels": {}}
    for method in METHODS:
        fine = good.get(method) or next(iter(API_BODIES.get(method, {"": {}}).values()))
        of_all = {
            "empty object": {},
            "empty body": "",
            "no JSON": "no JSON",
            "a list": "[]",
            "null": "null",
            "unknown fields": {**fine, "unknown": {"a": [1]}},
            "field null": {**fine, **{key: None for key in fine if key not in ("data", "commands")}},
        }
        if method in OF_CHANNELS:
            of_all |= {
                "unknown namespace": {**fine, "channel": "nowhere:$c"},
                "channel a number": {**fine, "channel": 1},
                "channel empty": {**fine, "channel": ""},
                "channel private": {**fine, "channel": "$open:$c"},
                "channel not ASCII": {**fine, "channel": "open:ü$c"},
                "channel long": {**fine, "channel": "open:" + "x" * 300},
            }
        for name, bodies in {**of_all, **API_BODIES.get(method, {})}.items():
            yield f"api {method}: {name}", (method, bodies if isinstance(bodies, list) else [bodies], None, {})
        yield f"api {method}: wrong key", (method, [fine], "wrong", {})
        yield f"api {method}: no key", (method, [fine], "", {})
        yield f"api {method}: error mode", (method, [{"channel": "nowhere:$c"}], None, {"X-Centrifugo-Error-Mode": "transport"})
    yield "api nothing: good", ("nothing", [{}], None, {})


API = dict(api_cases())
