"""A client of TLS 1.2 whose every record may be wrong: ECDHE with AES-128-GCM."""

from cryptography.hazmat.primitives.asymmetric import x25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import keys
from peer import Peer
from wire import (
    CERTIFICATE,
    CERTIFICATE_REQUEST,
    CERTIFICATE_VERIFY,
    CHANGE_CIPHER_SPEC,
    CLIENT_KEY_EXCHANGE,
    DATA,
    FINISHED,
    HANDSHAKE,
    NEW_SESSION_TICKET,
    SERVER_HELLO,
    SERVER_HELLO_DONE,
    SERVER_KEY_EXCHANGE,
    legacy_hello,
    message,
    number,
    record,
    vector,
)


class LegacyClient(Peer):
    """A handshake, a step at a time: say_hello, hear_flight, say_key_exchange, say_change, say_finished, hear_finished."""

    def __init__(self, port, **options):
        super().__init__(port, **options)
        self.hello = legacy_hello()
        self.private = x25519.X25519PrivateKey.generate()
        self.transcript = b""
        self.asks_certificate = False

    def say_hello(self):
        self.say(self.hello.message())

    def say(self, said):
        """Sends a message of the handshake in one record."""
        self.transcript += said
        self.send(self.write.seal(HANDSHAKE, said) if self.write else record(HANDSHAKE, said))

    def read_message(self):
        heard = super().read_message()
        self.transcript += heard
        return heard

    def hear_flight(self):
        """ServerHello to ServerHelloDone."""
        while True:
            heard = self.read_message()
            if heard[0] == SERVER_HELLO:
                self.server_random = heard[6:38]
            elif heard[0] == SERVER_KEY_EXCHANGE:
                # A named curve, and its point (RFC 8422, 5.4).
                length = heard[7]
                self.server_share = heard[8 : 8 + length]
            elif heard[0] == CERTIFICATE_REQUEST:
                self.asks_certificate = True
            elif heard[0] == SERVER_HELLO_DONE:
                return

    def certificate(self, chain):
        return message(CERTIFICATE, vector(3, b"".join(vector(3, each) for each in chain)))

    def certificate_verify(self, sign):
        return message(CERTIFICATE_VERIFY, number(2, 0x0403) + vector(2, sign(self.transcript)))

    def key_exchange(self):
        share = self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return message(CLIENT_KEY_EXCHANGE, vector(1, share))

    def derive(self):
        """The keys, once the key exchange has been said."""
        shared = self.private.exchange(x25519.X25519PublicKey.from_public_bytes(self.server_share))
        # RFC 7627, 4
        session = keys.digest(keys.AES_128, self.transcript)
        self.master = keys.expand_legacy(shared, b"extended master secret", session, 48)
        seed = self.server_random + self.hello.random
        block = keys.expand_legacy(self.master, b"key expansion", seed, 40)
        self.later_write = keys.LegacyHalf(block[:16], block[32:36])
        self.later_read = keys.LegacyHalf(block[16:32], block[36:40])

    def say_key_exchange(self):
        self.say(self.key_exchange())
        self.derive()

    def say_change(self):
        self.send(record(CHANGE_CIPHER_SPEC, b"\x01"))
        self.write = self.later_write

    def finished(self):
        verify = keys.expand_legacy(self.master, b"client finished", keys.digest(keys.AES_128, self.transcript), 12)
        return message(FINISHED, verify)

    def say_finished(self):
        self.say(self.finished())

    def hear_finished(self):
        """NewSessionTicket if there is one, change_cipher_spec and Finished."""
        while True:
            kind, contents = self.read_record()
            if kind == CHANGE_CIPHER_SPEC:
                break
            assert kind == HANDSHAKE and contents[0] == NEW_SESSION_TICKET, (kind, contents)
            self.transcript += contents
        self.read = self.later_read
        verify = keys.expand_legacy(self.master, b"server finished", keys.digest(keys.AES_128, self.transcript), 12)
        assert self.read_message() == message(FINISHED, verify)

    def shake_hands(self, identity=None):
        self.say_hello()
        self.hear_flight()
        if self.asks_certificate:
            self.say(self.certificate(identity.chain if identity else []))
        self.say_key_exchange()
        if self.asks_certificate and identity:
            self.say(self.certificate_verify(identity.sign))
        self.say_change()
        self.say_finished()
        self.hear_finished()
        return self

    def say_data(self, data):
        self.send(self.write.seal(DATA, data))

    def read_data(self):
        """The next data. None at the end."""
        found = self.read_record()
        if found is None:
            return None
        kind, contents = found
        assert kind == DATA, found
        return contents
