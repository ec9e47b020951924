"""Pebble, the test authority of Let's Encrypt, and the server of names that it asks. Go builds both."""

import contextlib
import json
import os
import socket
import ssl
import subprocess
import time
import urllib.request

import go_programs
import ports

PATIENCE = 60


def programs():
    """Their folder, in which Go builds them once; None where there is no Go."""
    return go_programs.build("pebble")


class Authority:
    """An authority that finds every name at 127.0.0.1. Its ports are the same each time that it starts."""

    def __init__(self, folder, own):
        """`folder` is for its files. `own` is the CA (trustme) of its directory, for tests that make certificates with it."""
        self.programs = programs()
        self.folder = folder
        self.own = own
        self.ca = folder / "directory-ca.pem"
        own.cert_pem.write_to_path(self.ca)
        certificate = own.issue_cert("localhost", "127.0.0.1")
        certificate.cert_chain_pems[0].write_to_path(folder / "directory.pem")
        certificate.private_key_pem.write_to_path(folder / "directory-key.pem")
        self.port, self.management, self.names = (ports.reserve() for _ in range(3))
        # Where it looks for the answers to its challenges.
        self.tls_port, self.http_port = ports.reserve(), ports.reserve()
        self.log = folder / "pebble.log"
        self.running = contextlib.ExitStack()

    @property
    def directory(self):
        return f"https://localhost:{self.port}/dir"

    def start(self, lifetime=90 * 24 * 3600, nonces_refused=0, sleep=0, reuse=0):
        """`lifetime` of its certificates in seconds; `nonces_refused` and `reuse` (of what it knows of a name) in percent; `sleep`: it
        waits up to so many seconds before it looks at a challenge."""
        config = {
            "listenAddress": f"127.0.0.1:{self.port}",
            "managementListenAddress": f"127.0.0.1:{self.management}",
            "certificate": str(self.folder / "directory.pem"),
            "privateKey": str(self.folder / "directory-key.pem"),
            "tlsPort": self.tls_port,
            "httpPort": self.http_port,
            "keyAlgorithm": "ecdsa",
            "retryAfter": {"authz": 1, "order": 1},
            "profiles": {"default": {"description": "of tests", "validityPeriod": lifetime}},
        }
        (self.folder / "pebble.json").write_text(json.dumps({"pebble": config}))
        failures = {
            "PEBBLE_WFE_NONCEREJECT": str(nonces_refused),
            "PEBBLE_VA_NOSLEEP": "0" if sleep else "1",
            "PEBBLE_VA_SLEEPTIME": str(sleep),
            "PEBBLE_AUTHZREUSE": str(reuse),
        }
        names = f"127.0.0.1:{self.names}"
        others = [word for name in ("http01", "https01", "tlsalpn01", "doh") for word in (f"-{name}", "")]
        management = f"127.0.0.1:{ports.reserve()}"
        self.run("pebble-challtestsrv", "-dnsserver", names, "-defaultIPv6", "", "-management", management, *others)
        self.run("pebble", "-config", self.folder / "pebble.json", "-dnsserver", names, environment=failures)
        self.await_port(self.port)
        self.await_port(self.management)

    def run(self, name, *arguments, environment=None):
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [self.programs / name, *map(str, arguments)],
                env={**os.environ, **(environment or {})},
                stdout=log,
                stderr=log,
            )
        self.running.callback(process.wait)
        self.running.callback(process.kill)

    def await_port(self, port):
        end = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return
            assert time.monotonic() < end, f"nobody listens at {port}: {self.log.read_text()}"
            time.sleep(0.05)

    def stop(self):
        self.running.close()

    def root(self):
        """The certificate (PEM) that signs those that it makes. It has another one each time that it starts."""
        context = ssl.create_default_context(cafile=self.ca)
        with urllib.request.urlopen(f"https://localhost:{self.management}/roots/0", context=context) as answer:
            return answer.read().decode()

    def orders(self):
        """Certificates that it has made since its log began."""
        return self.log.read_text().count("Issued certificate serial")
