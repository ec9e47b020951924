"""Runs nginx and HAProxy with the configs of deploy/, on other ports and without privileges."""

import os
import re
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import ports
import self_signed

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
# Debian installs servers where an ordinary user's PATH does not lead.
SEARCH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
PATIENCE = 30


def replace(config, old, new, count=1):
    """The config with a line replaced. A line that is not there that often is an error: the test would not run
    what deploy/ says."""
    lines = config.split("\n")
    found = sum(line.strip() == old for line in lines)
    assert found == count, f"{old!r} is in the config {found} times, not {count}"
    return "\n".join(new if line.strip() == old else line for line in lines)


def short_timeout(line):
    """A line with one of the `timeouts` of a kind, made short enough for a test."""
    return line.replace("90s", "5s")


class Nginx:
    """What differs between the two, for nginx."""

    name = "nginx"
    file = "nginx.conf"
    timeouts = ("proxy_read_timeout 90s;", "proxy_send_timeout 90s;")
    # Clients that there is room for, in the tests.
    clients = 700
    # Only its `stream` module speaks it to a server.
    sends_proxy_protocol = False
    # Lines that make it give up after a second on a request that does not come to its end.
    impatient = [
        ("access_log off;", "access_log off; client_header_timeout 1s; client_body_timeout 1s; keepalive_timeout 1s; lingering_close off;"),
    ]

    @staticmethod
    def tls(directory):
        """Lines of docs/proxies.md, with the port left open."""
        return f"listen 443 ssl; ssl_certificate {directory}/cert.pem; ssl_certificate_key {directory}/key.pem;"

    @staticmethod
    def fit(config, port, backends, directory, tls, proxy_protocol):
        # Workers of another user could not write to the test's directory.
        config = replace(config, "user www-data;", "user root;" if os.geteuid() == 0 else "")
        config = replace(config, "pid /run/nginx.pid;", f"pid {directory}/nginx.pid;")
        config = replace(config, "error_log /var/log/nginx/error.log warn;", "error_log stderr warn;")
        # One worker may get all of them.
        sockets = 2 * Nginx.clients + 100
        config = replace(config, "worker_rlimit_nofile 210000;", f"worker_rlimit_nofile {sockets + 500};")
        config = replace(config, "worker_connections 200000;", f"worker_connections {sockets};")
        listen = Nginx.tls(directory) if tls else "listen 80;"
        config = replace(config, "listen 80;", re.sub(r"\b(80|443)\b", f"127.0.0.1:{port}", listen, count=1))
        server = "server 127.0.0.1:8000 max_fails=1 fail_timeout=5s;"
        servers = [server.replace("127.0.0.1:8000", backend) for backend in backends]
        config = replace(config, server, "\n".join(servers))
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = "".join(f"\n{kind}_temp_path {directory}/{kind};" for kind in kinds)
        return replace(config, "http {", "http {" + paths)

    @staticmethod
    def command(program, file, directory):
        return [program, "-c", str(file), "-p", str(directory), "-e", "stderr", "-g", "daemon off;"]


class HAProxy:
    """What differs between the two, for HAProxy."""

    name = "haproxy"
    file = "haproxy.cfg"
    timeouts = ("timeout client 90s", "timeout server 90s", "timeout tunnel 90s")
    sends_proxy_protocol = True
    impatient = [
        ("timeout http-request 10s", "timeout http-request 1s"),
        ("timeout http-keep-alive 30s", "timeout http-keep-alive 1s"),
        ("timeout client 90s", "timeout client 1s"),
        ("timeout server 90s", "timeout server 5s"),
    ]
    clients = 700

    @staticmethod
    def tls(directory):
        """A line of docs/proxies.md, with the port left open."""
        return f"bind :443 ssl crt {directory}/both.pem"

    @staticmethod
    def fit(config, port, backends, directory, tls, proxy_protocol):
        config = config.replace("maxconn 200000", f"maxconn {HAProxy.clients + 300}")
        bind = HAProxy.tls(directory) if tls else "bind :80"
        config = replace(config, "bind :80", re.sub(r":(80|443)\b", f"127.0.0.1:{port}", bind, count=1))
        line = "server myriad-1 127.0.0.1:8000 check inter 2s fall 1 rise 1 maxconn 100000"
        proxied = " send-proxy-v2 check-send-proxy" if proxy_protocol else ""
        servers = [
            line.replace("myriad-1", f"myriad-{number}").replace("127.0.0.1:8000", backend) + proxied
            for number, backend in enumerate(backends, 1)
        ]
        return replace(config, line, "\n".join(servers))

    @staticmethod
    def command(program, file, directory):
        return [program, "-db", "-f", str(file)]


KINDS = {kind.name: kind for kind in (Nginx, HAProxy)}


class Proxy:
    """A proxy in a process of its own."""

    def __init__(self, kind, backends, directory, replaced=(), tls=False, proxy_protocol=False):
        self.kind = kind
        if tls:
            make_certificate(directory)
        self.host = "127.0.0.1"
        config = (DEPLOY / kind.file).read_text()
        for old, new in replaced:
            config = replace(config, old, new)
        self.port = ports.reserve()
        self._start(kind.fit(config, self.port, backends, directory, tls, proxy_protocol), directory)

    def _start(self, config, directory):
        file = directory / self.kind.file
        file.write_text(config)
        program = find(self.kind.name)
        self.process = subprocess.Popen(self.kind.command(program, file, directory))
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"{self.kind.name} did not start; see what it said above")
            with suppress(OSError), socket.create_connection((self.host, self.port), timeout=1):
                return
        self.stop()
        raise AssertionError(f"{self.kind.name} does not accept connections")

    @property
    def address(self):
        return f"{self.host}:{self.port}"

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def find(name):
    return shutil.which(name, path=SEARCH)


def make_certificate(directory):
    """A certificate, its key, and both in one file."""
    certificate, key = self_signed.certificate(directory)
    (directory / "both.pem").write_text(certificate.read_text() + key.read_text())
