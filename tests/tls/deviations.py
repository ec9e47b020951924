"""Where the library that makes handshakes (rustls), and keeps connections of TLS 1.2, answers with another alert than the RFC wants.

Each of these connections ends all the same. Its keys are the library's, so the server cannot say it itself. A case whose deviation has
gone fails, so that it leaves the list.
"""

NO_ALERT = None

NOT_SENT = "rustls returns its error and queues no alert"
NO_RECORD = "rustls has one alert for everything that is no record"
DECODES_FIRST = "rustls reads a message before it asks whether the message may come"

# Hellos.
HELLOS = {
    "no groups": ("handshake_failure", "rustls takes it for a client with no group in common"),
    "no signature algorithms": ("handshake_failure", "rustls asks for them before it knows the version"),
}

# TLS 1.3, before the keys are the server's.
HANDSHAKES = {
    "nothing inside": (NO_ALERT, NOT_SENT),
    "nothing but padding": (NO_ALERT, NOT_SENT),
    "a thousand changes of keys": (NO_ALERT, NOT_SENT),
    "an alert without contents": ("decode_error", DECODES_FIRST),
    "a type that TLS does not have": ("decode_error", DECODES_FIRST),
    "a change of keys without contents": ("decode_error", DECODES_FIRST),
    "a record of 2^14 + 257 bytes": ("decode_error", NO_RECORD),
}

LEGACY_HANDSHAKES = {
    "an empty key exchange": (NO_ALERT, NOT_SENT),
    "a key exchange of no bytes": (NO_ALERT, NOT_SENT),
    "a flood of warnings": (NO_ALERT, NOT_SENT),
    "half a message and a change of keys": (NO_ALERT, NOT_SENT),
}

# TLS 1.2, behind the handshake.
LEGACY = {
    **{f"a record of type {kind}": ("decode_error", NO_RECORD) for kind in (0, 19, 24, 128, 255)},
    "HTTP without TLS": ("decode_error", NO_RECORD),
    "a record of 2^14 + 2049 bytes": ("decode_error", NO_RECORD),
    "a record of 2^16 - 1 bytes": ("decode_error", NO_RECORD),
    "contents of type 24": ("decode_error", NO_RECORD),
    "a record of type 20 that nobody sealed": ("decode_error", "rustls reads a change_cipher_spec without opening it"),
    "a change of keys": ("decode_error", "rustls reads a change_cipher_spec without opening it"),
    "a flood of warnings": (NO_ALERT, NOT_SENT),
    "a flood of empty records": (NO_ALERT, NOT_SENT),
    "a message without contents": (NO_ALERT, "the rest of a message is not waited for"),
    "half a message": (NO_ALERT, "the rest of a message is not waited for"),
}
