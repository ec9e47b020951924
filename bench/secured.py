"""The same crowd over TLS and without: what a connection, a handshake and a push cost more."""

import subprocess

from course import through_pushes
from crowd import Run

KINDS = ("plain", "tls")
PUSHES = 5
# A certificate that is no authority's: the crowd takes it as its own authority (`--ca`).
CERTIFICATE = [
    "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
    "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
    "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key.pem", "-out", "cert.pem",
]


def broadcast(bench, name, kind, connections):
    """As `scenarios.broadcast`, to `raw` clients of the port with TLS, or of the plain one. Both servers have both ports."""
    every_s = 2 + connections // 50_000
    certificate, key = bench.out / "cert.pem", bench.out / "key.pem"
    if not certificate.exists():
        subprocess.run(CERTIFICATE, cwd=bench.out, check=True, capture_output=True)

    def server_options(ports):
        return ["--tls-listen", f"127.0.0.1:{ports[1]}", "--tls-certificate", certificate, "--tls-key", key]

    def crowd_options(_, ports):
        options = bench.publish_options("io_uring", ports, PUSHES, f"{every_s}s")
        return ["--ca", certificate, *options] if kind == "tls" else options

    path = "wss://127.0.0.1:TLS_PORT/raw?channel=bench" if kind == "tls" else "/raw?channel=bench"
    course = through_pushes(PUSHES, server_cpu_s=Run.cpu_seconds)
    figures = bench.run(name, "io_uring", connections, "0", crowd_options, course, path, server_options=server_options)
    return figures | {"kind": kind, "commands": [" ".join(CERTIFICATE), *figures["commands"]]}
