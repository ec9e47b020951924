"""A receiver of webhooks: checks who sent a batch, skips what it has seen, and prints the events.

    MYRIAD_SECRET=choose-a-long-one python3 examples/webhooks/receiver.py 8020

docs/webhooks.md has a config file that sends to it. Port 0 takes any free port; the receiver says which one it has.
"""

import hmac, json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

secret = os.environ["MYRIAD_SECRET"].encode()
seen = set()  # keep the ids of an hour in your database: a batch may come again after a restart of this program


def is_genuine(header, body):
    """The signature is HMAC-SHA256 of time and body; an old time is a request that somebody recorded."""
    parts = dict(part.split("=", 1) for part in header.split(",") if "=" in part)
    expected = hmac.new(secret, parts.get("t", "").encode() + b"." + body, "sha256").hexdigest()
    is_signed = hmac.compare_digest(expected, parts.get("v1", ""))
    return is_signed and abs(time.time() - int(parts["t"])) < 300


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        genuine = is_genuine(self.headers.get("X-Myriad-Signature", ""), body)
        batch = json.loads(body) if genuine else {"id": None}
        if genuine and batch["id"] not in seen:
            for event in batch["events"]:
                print(json.dumps(event), flush=True)
            if batch["dropped"]:
                print(batch["dropped"], "events are missing: ask the API who is there", flush=True)
            seen.add(batch["id"])
        self.send_response(204 if genuine else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Says nothing of single requests."""


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver)
print("listening on", server.server_port, flush=True)
server.serve_forever()
