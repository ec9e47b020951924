"""Tokens for a crowd, and the runs with them: what a signature costs a client that connects."""

import base64
import hashlib
import hmac
import json
import subprocess
import time

from course import until_over
from sessions import JSON_CLIENTS, PATH

KINDS = ("none", "hmac", "es256")
# Tokens of as many users. Clients take them in turn; the server verifies each one that is shown.
USERS = 1_000
LIFETIME_S = 24 * 3600
SECRET = "a secret for measurements, of no use elsewhere"


def with_tokens(bench, name, kind, connections):
    """JSON clients with one subscription each connect, with tokens of a kind or without any."""
    config, options = None, []
    if kind != "none":
        make, config = hmac_tokens(), f'[client.token]\nhmac_secret_key = "{SECRET}"\n'
        if kind == "es256":
            make, public_key = es256_tokens(bench.out)
            config = f'[client.token]\necdsa_public_key = """\n{public_key}"""\n'
        tokens = bench.out / f"{name}.tokens"
        tokens.write_text("\n".join(make) + "\n")
        options = ["--tokens", tokens]

    def crowd_options(*_):
        return [*JSON_CLIENTS, "--channel", "bench", "--duration", "2s", *options]

    return bench.run(name, "io_uring", connections, "0", crowd_options, until_over, PATH, config) | {"kind": kind}


def part(content):
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def unsigned(algorithm, user):
    """The signed part of a token: header and claims (RFC 7519)."""
    claims = {"sub": f"user-{user}", "exp": int(time.time()) + LIFETIME_S}
    return ".".join(part(json.dumps(value).encode()) for value in ({"alg": algorithm, "typ": "JWT"}, claims))


def hmac_tokens():
    texts = (unsigned("HS256", user) for user in range(USERS))
    return [f"{text}.{part(hmac.digest(SECRET.encode(), text.encode(), hashlib.sha256))}" for text in texts]


def es256_tokens(folder):
    """Tokens by ECDSA with the curve P-256, and the public key that verifies them."""
    private = folder / "es256.key.pem"
    openssl(["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(private)])
    public_key = openssl(["ec", "-in", str(private), "-pubout"]).decode()
    texts = [unsigned("ES256", user) for user in range(USERS)]
    sign = ["dgst", "-sha256", "-sign", str(private)]
    return [f"{text}.{part(plain_signature(openssl(sign, text.encode())))}" for text in texts], public_key


def openssl(arguments, content=b""):
    return subprocess.run(["openssl", *arguments], input=content, capture_output=True, check=True).stdout


def plain_signature(der):
    """The two numbers of an ECDSA signature, 32 bytes each (RFC 7518, section 3.4). OpenSSL writes them as DER integers."""
    first = 4
    first_end = first + der[3]
    second = first_end + 2
    numbers = (der[first:first_end], der[second : second + der[first_end + 1]])
    return b"".join(number.lstrip(b"\0").rjust(32, b"\0") for number in numbers)
