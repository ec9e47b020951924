"""A client of TLS 1.3 whose every record may be wrong."""

from cryptography.hazmat.primitives.asymmetric import x25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import keys
from peer import Peer
from wire import (
    CERTIFICATE,
    CERTIFICATE_REQUEST,
    CERTIFICATE_VERIFY,
    CHANGE_CIPHER_SPEC,
    DATA,
    FINISHED,
    HANDSHAKE,
    KEY_SHARE,
    KEY_UPDATE,
    MESSAGE_HASH,
    NEW_SESSION_TICKET,
    PRE_SHARED_KEY,
    RETRY_RANDOM,
    SERVER_HELLO,
    message,
    modern_hello,
    number,
    record,
    vector,
)


class Client(Peer):
    """A handshake, a step at a time: say_hello, hear_hello, hear_flight, say_finished. `shake_hands` makes all of them."""

    def __init__(self, port, suite=keys.AES_128, **options):
        super().__init__(port, **options)
        self.suite = suite
        self.private = x25519.X25519PrivateKey.generate()
        self.share = self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.hello = modern_hello(self.share).but(suites=(suite.number,))
        self.transcript = b""
        self.asks_certificate = False
        self.psk = None
        self.tickets = []

    def say_hello(self):
        said = self.hello.message()
        self.transcript += said
        self.send(record(HANDSHAKE, said))

    def open(self, head, body):
        # It means nothing in TLS 1.3 (RFC 8446, 5).
        if head[0] == CHANGE_CIPHER_SPEC:
            found = self.read_record()
            assert found is not None, "the server ended the connection behind change_cipher_spec"
            return found
        return super().open(head, body)

    def hear_retry(self):
        """Hears a HelloRetryRequest. From then on the transcript begins with the hash of the first hello (RFC 8446, 4.4.1)."""
        heard = self.read_message()
        assert heard[0] == SERVER_HELLO and heard[6:38] == RETRY_RANDOM, heard
        first = message(MESSAGE_HASH, keys.digest(self.suite, self.transcript))
        self.transcript = first + heard

    def hear_hello(self):
        """Hears the ServerHello. From here on both directions have keys of the handshake."""
        heard = self.read_message()
        assert heard[0] == SERVER_HELLO and heard[6:38] != RETRY_RANDOM, heard
        self.transcript += heard
        at = 39 + heard[38]
        self.suite = keys.SUITES[int.from_bytes(heard[at : at + 2], "big")]
        share = heard[-32:]
        extensions = heard[at + 5 :]
        self.is_resumed = False
        while extensions:
            kind, length = int.from_bytes(extensions[:2], "big"), int.from_bytes(extensions[2:4], "big")
            body, extensions = extensions[4 : 4 + length], extensions[4 + length :]
            if kind == KEY_SHARE:
                share = body[4:]
            self.is_resumed |= kind == PRE_SHARED_KEY
        shared = self.private.exchange(x25519.X25519PublicKey.from_public_bytes(share))
        early = keys.extract(self.suite, None, self.psk if self.is_resumed else None)
        derived = keys.expand(self.suite, early, b"derived", keys.digest(self.suite))
        self.secret = keys.extract(self.suite, derived, shared)
        self.write = keys.Half(self.suite, self.derive(b"c hs traffic"))
        self.read = keys.Half(self.suite, self.derive(b"s hs traffic"))

    def derive(self, label):
        return keys.expand(self.suite, self.secret, label, keys.digest(self.suite, self.transcript))

    def hear_flight(self):
        """Hears the rest of the server's flight, and checks its Finished."""
        while True:
            heard = self.read_message()
            if heard[0] == FINISHED:
                assert heard[4:] == self.read.finished(keys.digest(self.suite, self.transcript))
                self.transcript += heard
                break
            self.asks_certificate |= heard[0] == CERTIFICATE_REQUEST
            self.transcript += heard
        derived = keys.expand(self.suite, self.secret, b"derived", keys.digest(self.suite))
        self.secret = keys.extract(self.suite, derived, None)
        self.later_write, self.read = self.derive(b"c ap traffic"), keys.Half(self.suite, self.derive(b"s ap traffic"))

    def say(self, said):
        """Sends a message of the handshake in one record."""
        self.transcript += said
        self.send(self.write.seal(HANDSHAKE, said))

    def certificate(self, chain):
        """The message with our certificates, in DER (RFC 8446, 4.4.2)."""
        entries = b"".join(vector(3, each) + vector(2, b"") for each in chain)
        return message(CERTIFICATE, vector(1, b"") + vector(3, entries))

    def certificate_verify(self, sign):
        """The message that shows that we have the key (RFC 8446, 4.4.3)."""
        signed = b" " * 64 + b"TLS 1.3, client CertificateVerify\0" + keys.digest(self.suite, self.transcript)
        return message(CERTIFICATE_VERIFY, number(2, 0x0403) + vector(2, sign(signed)))

    def finished(self):
        return message(FINISHED, self.write.finished(keys.digest(self.suite, self.transcript)))

    def say_finished(self):
        self.say(self.finished())
        self.open_application()

    def open_application(self):
        """From here on we write with the keys for data."""
        self.resumption = self.derive(b"res master")
        self.write = keys.Half(self.suite, self.later_write)

    def shake_hands(self, identity=None):
        """All of it, as it should be. `identity` has a chain and a function that signs."""
        self.say_hello()
        self.hear_hello()
        self.hear_flight()
        if self.asks_certificate:
            self.say(self.certificate(identity.chain if identity else []))
            if identity:
                self.say(self.certificate_verify(identity.sign))
        self.say_finished()
        return self

    def handle_message(self, contents):
        if contents[0] == KEY_UPDATE:
            self.read.update()
        elif contents[0] == NEW_SESSION_TICKET:
            self.tickets.append(contents)

    def read_data(self):
        """The next data. None at the end."""
        while (found := self.read_record()) is not None:
            kind, contents = found
            if kind == DATA:
                return contents
            assert kind == HANDSHAKE, found
            self.handle_message(contents)
        return None

    def say_data(self, data, **options):
        self.send(self.write.seal(DATA, data, **options))
