"""An application that Myriad asks what its clients may do: `python3 application.py [PORT] [SECONDS]`.

SECONDS is how long a connection and a subscription last until Myriad asks again.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
SECONDS = int(sys.argv[2]) if len(sys.argv) > 2 else 60


def expire_at():
    return int(time.time()) + SECONDS


def connect(call):
    name = (call.get("data") or {}).get("name")
    if not name:
        return {"disconnect": {"code": 4501, "reason": "say your name"}}
    data = {"hello": name}
    return {"result": {"user": name, "expire_at": expire_at(), "data": data, "channels": ["news"]}}


def refresh(call):
    return {"result": {"expire_at": expire_at()}}


def subscribe(call):
    if call["channel"] == "chat:staff" and call["user"] != "ada":
        return {"error": {"code": 403, "message": "for staff only"}}
    return {"result": {"expire_at": expire_at(), "info": {"name": call["user"]}}}


def publish(call):
    return {"result": {"data": {"text": call["data"]["text"], "from": call["user"]}}}


def rpc(call):
    if call["method"] != "time":
        return {"error": {"code": 404, "message": "no such method"}}
    return {"result": {"data": {"time": time.time(), "you": call["user"]}}}


CALLS = {
    "/connect": connect,
    "/refresh": refresh,
    "/subscribe": subscribe,
    "/publish": publish,
    "/sub_refresh": refresh,
    "/rpc": rpc,
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections
    wbufsize = -1  # sends head and body together

    def do_POST(self):
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps(CALLS[self.path](call)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
