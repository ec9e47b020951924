"""What protects records: the key schedules of TLS 1.3 and 1.2."""

import hashlib
import hmac
from dataclasses import dataclass

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from wire import DATA, TLS12, number, record, vector


@dataclass(frozen=True)
class Suite:
    name: str
    number: int
    hash: str
    cipher: type
    key_length: int


AES_128 = Suite("AES-128-GCM", 0x1301, "sha256", AESGCM, 16)
AES_256 = Suite("AES-256-GCM", 0x1302, "sha384", AESGCM, 32)
CHACHA = Suite("ChaCha20-Poly1305", 0x1303, "sha256", ChaCha20Poly1305, 32)
SUITES = {suite.number: suite for suite in (AES_128, AES_256, CHACHA)}


def digest(suite, *parts):
    return hashlib.new(suite.hash, b"".join(parts)).digest()


def mac(hash_name, key, text):
    return hmac.new(key, text, hash_name).digest()


def extract(suite, salt, key):
    """HKDF-Extract (RFC 5869)."""
    zeros = bytes(hashlib.new(suite.hash).digest_size)
    return mac(suite.hash, salt or zeros, zeros if key is None else key)


def expand(suite, secret, label, context=b"", length=None):
    """HKDF-Expand-Label (RFC 8446, 7.1)."""
    length = length or hashlib.new(suite.hash).digest_size
    info = number(2, length) + vector(1, b"tls13 " + label) + vector(1, context)
    made, block, counter = b"", b"", 1
    while len(made) < length:
        block = mac(suite.hash, secret, block + info + bytes([counter]))
        made, counter = made + block, counter + 1
    return made[:length]


class Half:
    """One direction of a connection of TLS 1.3."""

    def __init__(self, suite, secret):
        self.suite = suite
        self.install(secret)

    def install(self, secret):
        self.secret = secret
        self.cipher = self.suite.cipher(expand(self.suite, secret, b"key", length=self.suite.key_length))
        self.nonce = expand(self.suite, secret, b"iv", length=12)
        self.sequence = 0

    def update(self):
        """The next key (RFC 8446, 7.2)."""
        self.install(expand(self.suite, self.secret, b"traffic upd"))

    def finished(self, transcript):
        """The contents of a Finished (RFC 8446, 4.4.4)."""
        return mac(self.suite.hash, expand(self.suite, self.secret, b"finished"), transcript)

    def take_nonce(self):
        sequence = self.sequence
        self.sequence += 1
        return (int.from_bytes(self.nonce, "big") ^ sequence).to_bytes(12, "big")

    def seal(self, kind, text, padding=0, version=TLS12):
        return self.seal_inner(text + bytes([kind]) + bytes(padding), version)

    def seal_inner(self, inner, version=TLS12):
        """A record with any inside, the type of its contents included."""
        head = number(1, DATA) + number(2, version) + number(2, len(inner) + 16)
        return head + self.cipher.encrypt(self.take_nonce(), inner, head)

    def open(self, head, body):
        """Type and contents of a record."""
        inner = self.cipher.decrypt(self.take_nonce(), body, head).rstrip(b"\0")
        return inner[-1], inner[:-1]


def expand_legacy(secret, label, seed, length):
    """The PRF of TLS 1.2 with SHA-256 (RFC 5246, 5)."""
    seed = label + seed
    made, link = b"", seed
    while len(made) < length:
        link = mac("sha256", secret, link)
        made += mac("sha256", secret, link + seed)
    return made[:length]


class LegacyHalf:
    """One direction of a connection of TLS 1.2 with AES-128-GCM (RFC 5288)."""

    def __init__(self, key, salt):
        self.cipher = AESGCM(key)
        self.salt = salt
        self.sequence = 0

    def seal(self, kind, text, version=TLS12):
        explicit = number(8, self.sequence)
        extra = explicit + number(1, kind) + number(2, version) + number(2, len(text))
        self.sequence += 1
        return record(kind, explicit + self.cipher.encrypt(self.salt + explicit, text, extra), version)

    def open(self, head, body):
        extra = number(8, self.sequence) + head[:3] + number(2, len(body) - 24)
        self.sequence += 1
        return head[0], self.cipher.decrypt(self.salt + body[:8], body[8:], extra)
