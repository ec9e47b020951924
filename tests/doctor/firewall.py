"""Makes connection tracking look at every packet of the network namespace it runs in.

Does what `nft add rule inet t c ct state new counter` would, without nft: a table, a chain at the input
hook, and a rule that asks for the connection's state, which is what turns tracking on.
"""

import os
import socket
import struct

NETLINK_NETFILTER, SUBSYSTEM, BATCH_BEGIN, BATCH_END = 12, 10, 16, 17
NEW_TABLE, NEW_CHAIN, NEW_RULE = 0, 3, 6
REQUEST, ACK, CREATE = 1, 4, 0x400
INET, IPV4_INPUT_HOOK, NESTED = 1, 1, 0x8000


def attribute(kind, payload):
    if isinstance(payload, str):
        payload = payload.encode() + b"\0"
    length = 4 + len(payload)
    return struct.pack("HH", length, kind) + payload + b"\0" * (-length % 4)


def number(value):
    return struct.pack(">I", value)


def message(kind, flags, sequence, family, payload=b"", resource=0):
    body = struct.pack(">BBH", family, 0, resource) + payload
    return struct.pack("IHHII", 16 + len(body), kind, flags, sequence, 0) + body


def of_tables(kind, sequence, payload):
    return message(SUBSYSTEM << 8 | kind, REQUEST | ACK | CREATE, sequence, INET, payload)


def main():
    hook = attribute(1, number(IPV4_INPUT_HOOK)) + attribute(2, number(0))
    # The state into register 1: expression "ct" with key 0.
    state = attribute(1, number(8)) + attribute(2, number(0))
    expression = attribute(1, "ct") + attribute(2 | NESTED, state)
    batch = b"".join(
        [
            message(BATCH_BEGIN, REQUEST, 1, 0, resource=SUBSYSTEM),
            of_tables(NEW_TABLE, 2, attribute(1, "t")),
            of_tables(
                NEW_CHAIN,
                3,
                attribute(1, "t") + attribute(3, "c") + attribute(4 | NESTED, hook) + attribute(7, "filter"),
            ),
            of_tables(
                NEW_RULE,
                4,
                attribute(1, "t") + attribute(2, "c") + attribute(4 | NESTED, attribute(1 | NESTED, expression)),
            ),
            message(BATCH_END, REQUEST, 5, 0, resource=SUBSYSTEM),
        ]
    )
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    netlink.bind((0, 0))
    netlink.send(batch)
    answered = 0
    while answered < 3:
        answer = netlink.recv(1 << 16)
        while answer:
            length, kind = struct.unpack_from("IH", answer)
            assert kind == 2, f"an answer of kind {kind}"
            (error,) = struct.unpack_from("i", answer, 16)
            if error:
                raise SystemExit(f"nf_tables: {os.strerror(-error)}")
            answered += 1
            answer = answer[(length + 3) & ~3 :]


if __name__ == "__main__":
    main()
