"""Bytes of TLS, as a test wants them: nothing here is checked, and every length may lie."""

import os
from dataclasses import dataclass, field, replace

CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, DATA, HEARTBEAT = 20, 21, 22, 23, 24

CLIENT_HELLO, SERVER_HELLO, NEW_SESSION_TICKET, END_OF_EARLY_DATA, ENCRYPTED_EXTENSIONS = 1, 2, 4, 5, 8
CERTIFICATE, SERVER_KEY_EXCHANGE, CERTIFICATE_REQUEST, SERVER_HELLO_DONE = 11, 12, 13, 14
CERTIFICATE_VERIFY, CLIENT_KEY_EXCHANGE, FINISHED, KEY_UPDATE, MESSAGE_HASH = 15, 16, 20, 24, 254

SERVER_NAME, SUPPORTED_GROUPS, POINT_FORMATS, SIGNATURE_ALGORITHMS, ALPN = 0, 10, 11, 13, 16
EXTENDED_MASTER_SECRET, SESSION_TICKET, PRE_SHARED_KEY, EARLY_DATA = 23, 35, 41, 42
SUPPORTED_VERSIONS, COOKIE, PSK_MODES, KEY_SHARE, RENEGOTIATION_INFO = 43, 44, 45, 51, 0xFF01

SSL3, TLS10, TLS11, TLS12, TLS13 = 0x0300, 0x0301, 0x0302, 0x0303, 0x0304

X25519, P256 = 0x001D, 0x0017
# ecdsa_secp256r1_sha256, rsa_pss_rsae_sha256, rsa_pkcs1_sha256
SIGNATURES = (0x0403, 0x0804, 0x0401)

# Bytes of text that a record takes (RFC 8446, 5.1), and with its type, padding and tag (5.2).
TEXT_MAX = 1 << 14
RECORD_MAX = TEXT_MAX + 256

# The random of a ServerHello that is a HelloRetryRequest (RFC 8446, 4.1.3).
RETRY_RANDOM = bytes.fromhex("CF21AD74E59A6111BE1D8C021E65B891C2A211167ABB8C5E079E09E2C8A8339C")

ALERTS = {
    0: "close_notify",
    10: "unexpected_message",
    20: "bad_record_mac",
    22: "record_overflow",
    40: "handshake_failure",
    42: "bad_certificate",
    47: "illegal_parameter",
    48: "unknown_ca",
    50: "decode_error",
    51: "decrypt_error",
    70: "protocol_version",
    71: "insufficient_security",
    80: "internal_error",
    86: "inappropriate_fallback",
    90: "user_canceled",
    100: "no_renegotiation",
    109: "missing_extension",
    110: "unsupported_extension",
    112: "unrecognized_name",
    116: "certificate_required",
    120: "no_application_protocol",
}
NUMBERS = {name: number for number, name in ALERTS.items()}


def number(size, value):
    return value.to_bytes(size, "big")


def vector(size, body, length=None):
    """Bytes behind their length, which takes `size` bytes. `length` lies about it."""
    return number(size, len(body) if length is None else length) + body


def record(kind, body, version=TLS12, length=None):
    return number(1, kind) + number(2, version) + vector(2, body, length)


def records(kind, body, size, version=TLS12):
    """The same in records of that many bytes."""
    return b"".join(record(kind, body[at : at + size], version) for at in range(0, len(body), size))


def message(kind, body, length=None):
    """A message of a handshake."""
    return number(1, kind) + vector(3, body, length)


def extension(kind, body, length=None):
    return number(2, kind) + vector(2, body, length)


def alert(level, description):
    return bytes([level, NUMBERS[description]])


@dataclass(frozen=True)
class Hello:
    """The parts of a ClientHello. `extensions` stay in their order."""

    version: int = TLS12
    random: bytes = field(default_factory=lambda: os.urandom(32))
    session_id: bytes = field(default_factory=lambda: os.urandom(32))
    suites: tuple = (0x1301,)
    compressions: bytes = b"\0"
    extensions: tuple = ()
    # Whether the list of extensions is there: hellos of TLS 1.0 had none.
    has_extensions: bool = True

    def body(self):
        parts = [number(2, self.version), self.random, vector(1, self.session_id)]
        parts.append(vector(2, b"".join(number(2, suite) for suite in self.suites)))
        parts.append(vector(1, self.compressions))
        if self.has_extensions:
            parts.append(vector(2, b"".join(extension(kind, body) for kind, body in self.extensions)))
        return b"".join(parts)

    def message(self):
        return message(CLIENT_HELLO, self.body())

    def but(self, **changes):
        return replace(self, **changes)

    def get(self, kind):
        return dict(self.extensions)[kind]

    def with_extension(self, kind, body):
        """In place of the one of this kind, or at the end."""
        if kind in dict(self.extensions):
            return self.but(extensions=tuple((each, body if each == kind else old) for each, old in self.extensions))
        return self.but(extensions=(*self.extensions, (kind, body)))

    def without(self, *kinds):
        return self.but(extensions=tuple(each for each in self.extensions if each[0] not in kinds))


def key_share(*entries):
    """The extension of a ClientHello: groups with their keys."""
    return vector(2, b"".join(number(2, group) + vector(2, key) for group, key in entries))


def numbers(size, *values):
    """A list of numbers of two bytes behind its length, which takes `size` bytes."""
    return vector(size, b"".join(number(2, value) for value in values))


def modern_hello(share, versions=(TLS13,)):
    """What a client of TLS 1.3 says with an X25519 key."""
    return Hello(
        extensions=(
            (SERVER_NAME, vector(2, b"\0" + vector(2, b"localhost"))),
            (SUPPORTED_GROUPS, numbers(2, X25519)),
            (SIGNATURE_ALGORITHMS, numbers(2, *SIGNATURES)),
            (SUPPORTED_VERSIONS, numbers(1, *versions)),
            (PSK_MODES, vector(1, b"\x01")),
            (KEY_SHARE, key_share((X25519, share))),
        )
    )


def legacy_hello():
    """What a client of TLS 1.2 says."""
    return Hello(
        session_id=b"",
        # ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        suites=(0xC02B,),
        extensions=(
            (SERVER_NAME, vector(2, b"\0" + vector(2, b"localhost"))),
            (SUPPORTED_GROUPS, numbers(2, X25519)),
            (POINT_FORMATS, vector(1, b"\0")),
            (SIGNATURE_ALGORITHMS, numbers(2, *SIGNATURES)),
            (EXTENDED_MASTER_SECRET, b""),
            (RENEGOTIATION_INFO, b"\0"),
        ),
    )
