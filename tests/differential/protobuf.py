"""The client protocol's messages in protobuf, from and to what JSON would say, so that a case is written once for both encodings."""

import json

POSITION = {"offset": (1, int), "epoch": (2, str)}
FILTER = {"op": (1, str), "key": (2, str), "cmp": (3, str), "val": (4, str), "vals": (5, [str])}
FILTER["nodes"] = (6, [FILTER])
ERROR = {"code": (1, int), "message": (2, str), "temporary": (3, bool)}
INFO = {"user": (1, str), "client": (2, str), "conn_info": (3, bytes), "chan_info": (4, bytes)}
PUBLICATION = {
    "data": (4, bytes), "info": (5, INFO), "offset": (6, int), "tags": (7, {str: str}), "delta": (8, bool), "time": (9, int),
    "channel": (10, str), "key": (11, str), "removed": (12, bool), "epoch": (14, str), "version": (16, int),
}
SUBSCRIBE = {
    "channel": (1, str), "token": (2, str), "recover": (3, bool), "epoch": (6, str), "offset": (7, int), "data": (8, bytes),
    "positioned": (9, bool), "recoverable": (10, bool), "join_leave": (11, bool), "delta": (12, str), "tf": (13, FILTER),
    "flag": (14, int), "type": (15, int),
}
SUBSCRIBED = {
    "expires": (1, bool), "ttl": (2, int), "recoverable": (3, bool), "epoch": (6, str), "publications": (7, [PUBLICATION]),
    "recovered": (8, bool), "offset": (9, int), "positioned": (10, bool), "data": (11, bytes), "was_recovering": (12, bool),
    "delta": (13, bool), "id": (14, int), "type": (15, int),
}
CONNECT = {
    "token": (1, str), "data": (2, bytes), "subs": (3, {str: SUBSCRIBE}), "name": (4, str), "version": (5, str),
    "headers": (6, {str: str}), "flag": (7, int),
}
CONNECTED = {
    "client": (1, str), "version": (2, str), "expires": (3, bool), "ttl": (4, int), "data": (5, bytes), "subs": (6, {str: SUBSCRIBED}),
    "ping": (7, int), "pong": (8, bool), "session": (9, str), "node": (10, str), "time": (11, int),
}
CHANNEL = {"channel": (1, str)}
EXPIRY = {"expires": (1, bool), "ttl": (2, int)}
COMMAND = {
    "id": (1, int), "connect": (4, CONNECT), "subscribe": (5, SUBSCRIBE), "unsubscribe": (6, CHANNEL),
    "publish": (7, {"channel": (1, str), "data": (2, bytes), "type": (3, int), "key": (4, str), "removed": (5, bool)}),
    "presence": (8, CHANNEL), "presence_stats": (9, CHANNEL),
    "history": (10, {"channel": (1, str), "limit": (7, int), "since": (8, POSITION), "reverse": (9, bool)}),
    "ping": (11, {}), "send": (12, {"data": (1, bytes)}), "rpc": (13, {"data": (1, bytes), "method": (2, str)}),
    "refresh": (14, {"token": (1, str)}), "sub_refresh": (15, {"channel": (1, str), "token": (2, str), "type": (3, int)}),
}
PUSH = {
    "id": (1, int), "channel": (2, str), "pub": (4, PUBLICATION), "join": (5, {"info": (1, INFO)}), "leave": (6, {"info": (1, INFO)}),
    "unsubscribe": (7, {"code": (2, int), "reason": (3, str)}), "message": (8, {"data": (1, bytes)}),
    "subscribe": (9, {"recoverable": (1, bool), "epoch": (4, str), "offset": (5, int), "positioned": (6, bool), "data": (7, bytes)}),
    "connect": (10, CONNECTED), "disconnect": (11, {"code": (1, int), "reason": (2, str), "reconnect": (3, bool)}),
    "refresh": (12, EXPIRY),
}
REPLY = {
    "id": (1, int), "error": (2, ERROR), "push": (4, PUSH), "connect": (5, CONNECTED), "subscribe": (6, SUBSCRIBED), "unsubscribe": (7, {}),
    "publish": (8, {}), "presence": (9, {"presence": (1, {str: INFO})}),
    "presence_stats": (10, {"num_clients": (1, int), "num_users": (2, int)}),
    "history": (11, {"publications": (1, [PUBLICATION]), "epoch": (2, str), "offset": (3, int)}), "ping": (12, {}),
    "rpc": (13, {"data": (1, bytes)}), "refresh": (14, {"client": (1, str), "version": (2, str), "expires": (3, bool), "ttl": (4, int)}),
    "sub_refresh": (15, EXPIRY),
}
EMULATION = {"node": (1, str), "session": (2, str), "data": (3, bytes)}
VARINT, LENGTH = 0, 2


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, payload):
    return varint(number << 3 | LENGTH) + varint(len(payload)) + payload


def encode(schema, message):
    """Fields that the schema does not have become a field 2000, which no server knows."""
    out = b""
    for name, value in message.items():
        number, kind = schema.get(name, (2000, str))
        if kind in (int, bool):
            out += varint(number << 3 | VARINT) + varint(int(value))
        elif isinstance(kind, list):
            out += b"".join(field(number, payload_of(kind[0], one)) for one in value)
        elif isinstance(kind, dict) and str in kind:
            for key, one in value.items():
                out += field(number, field(1, key.encode()) + field(2, payload_of(kind[str], one)))
        else:
            out += field(number, payload_of(kind, value))
    return out


def payload_of(kind, value):
    if isinstance(value, bytes):
        return value
    if kind is str:
        return str(value).encode()
    if kind is bytes:
        return json.dumps(value, separators=(",", ":")).encode()
    return encode(kind, value)


def read_varint(data, at):
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at


def fields_of(data):
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        if key & 7 == VARINT:
            value, at = read_varint(data, at)
        elif key & 7 == LENGTH:
            size, at = read_varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"wire type {key & 7}")
        yield key >> 3, value


def decode(schema, data):
    known = {number: (name, kind) for name, (number, kind) in schema.items()}
    message = {}
    for number, value in fields_of(data):
        name, kind = known.get(number, (f"field {number}", bytes))
        if isinstance(kind, list):
            message.setdefault(name, []).append(value_of(kind[0], value))
        elif isinstance(kind, dict) and str in kind:
            entry = dict(fields_of(value))
            message.setdefault(name, {})[entry.get(1, b"").decode()] = value_of(kind[str], entry.get(2, b""))
        else:
            message[name] = value_of(kind, value)
    return message


def value_of(kind, value):
    if kind in (int, bool):
        return kind(value)
    if kind is str:
        return value.decode()
    if kind is bytes:
        try:
            return json.loads(value)
        except ValueError:
            return f"bytes {value.hex()}"
    return decode(kind, value)


def split(data):
    """The messages of a frame, each after its length."""
    at = 0
    while at < len(data):
        size, at = read_varint(data, at)
        yield data[at : at + size]
        at += size


def join(messages):
    return b"".join(varint(len(message)) + message for message in messages)
