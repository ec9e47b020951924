"""`docs/openapi.json`: its examples are sent to the server, and all that is said is compared with its schemas."""

import copy
import json
import time
from http.client import HTTPConnection

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from server import PATIENCE, ROOT, Answer
from test_tokens import SECRET, token

DOCUMENT = json.loads((ROOT / "docs" / "openapi.json").read_text())
SCHEMAS = DOCUMENT["components"]["schemas"]
METHODS = {path: item["post"] for path, item in DOCUMENT["paths"].items() if "post" in item}
# The client id that examples name.
EXAMPLE_ID = "00112233-4455-4677-8899-aabbccddeeff"
CONFIG = f"""
[client.token]
hmac_secret_key = "{SECRET}"
[channel.without_namespace]
allow_subscribe_for_client = true
[[channel.namespaces]]
name = "chat"
presence = true
history_size = 100
history_ttl = "300s"
allow_subscribe_for_client = true
allow_publish_for_client = true
[[channel.namespaces]]
name = "quiet"
[http_api]
key = "k"
"""
KEY = {"X-API-Key": "k"}
TRANSPORT = {100: 500, 102: 404, 104: 404, 106: 400, 107: 400, 108: 400, 111: 429, 112: 416}
# Fields that these examples cannot bring about. Each needs a client or a state of its own, which other tests have.
UNSEEN = {
    "BatchAnswer.error",
    "ChannelsResult.unanswered_nodes",
    "ClientInfo.b64chan_info",
    "ClientInfo.b64conn_info",
    "ClientInfo.chan_info",
    "Connection.b64info",
    "Connection.state.b64meta",
    "ConnectionsResult.unanswered_nodes",
    "Error.detail",
    "InfoAnswer.error",
    "InfoResult.unanswered_nodes",
    "PresenceResult.unanswered_nodes",
    "PresenceStatsResult.unanswered_nodes",
    "TraceLine.b64message",
}


def name_of(reference):
    return reference.rsplit("/", 1)[1]


def strict(schema):
    """The same schema, which takes no field that it does not list."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: strict(value) for key, value in schema.items()}
    if "properties" in schema and isinstance(schema["properties"], dict) and schema.get("type") == "object":
        schema.setdefault("additionalProperties", False)
    return schema


STRICT = strict(copy.deepcopy(SCHEMAS))


def check(value, name):
    """The value is what the schema of this name says, and nothing else."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": STRICT}}
    errors = list(Draft202012Validator(schema).iter_errors(value))
    assert not errors, f"{name} {value}: {errors}"


def look(value, schema, seen, name=""):
    """Notes which described fields a value has, as `Schema.field`."""
    if "$ref" in schema:
        name = name_of(schema["$ref"])
        schema = SCHEMAS[name]
    if isinstance(value, list):
        for one in value:
            look(one, schema.get("items", {}), seen, f"{name}[]")
    if isinstance(value, dict):
        for field, below in value.items():
            if field in schema.get("properties", {}):
                seen.add(f"{name}.{field}")
                look(below, schema["properties"][field], seen, f"{name}.{field}")
            elif isinstance(schema.get("additionalProperties"), dict):
                look(below, schema["additionalProperties"], seen, f"{name}{{}}")


def described(schema, into, name="", known=()):
    """All fields of a schema, named alike."""
    if "$ref" in schema:
        name = name_of(schema["$ref"])
        if name in known:
            return
        known = (*known, name)
        schema = SCHEMAS[name]
    for field, below in schema.get("properties", {}).items():
        into.add(f"{name}.{field}")
        described(below, into, f"{name}.{field}", known)
    if "items" in schema:
        described(schema["items"], into, f"{name}[]", known)
    if isinstance(schema.get("additionalProperties"), dict):
        described(schema["additionalProperties"], into, f"{name}{{}}", known)


class Stage:
    """A server with one client in the channel of the examples."""

    def __init__(self, serve, folder):
        config = folder / "myriad.toml"
        config.write_text(CONFIG)
        self.server = serve("--config", str(config), dev=False)
        self.visits = 0

    def visit(self, user, *channels):
        """Another connection, which publishes in the first of its channels. Returns its client id, and the socket."""
        self.visits += 1
        claims = {"sub": user, "jti": f"visit {self.visits}", "iat": int(time.time()), "info": {"name": "Ada"}, "meta": {"device": "ios"}}
        socket = self.server.client("/connection/websocket")

        def call(number, **command):
            socket.send(json.dumps({"id": number, **command}))
            while True:
                for line in socket.recv(PATIENCE).split("\n"):
                    if (reply := json.loads(line)).get("id") == number:
                        assert "error" not in reply, reply
                        return reply

        client = call(1, connect={"token": token(claims)})["connect"]["client"]
        for number, channel in enumerate(channels, 2):
            call(number, subscribe={"channel": channel})
        call(99, publish={"channel": channels[0], "data": {"from": "a client"}})
        return client, socket

    def post(self, path, body, **headers):
        """Posts an example with a real client in place of its own, while there is another one."""
        (client, socket), (_, other) = self.visit("42", "chat:index"), self.visit("43", "chat:index", "news")
        text = body if isinstance(body, str) else json.dumps(body)
        text = text.replace(EXAMPLE_ID, client)
        # A client that is traced says something, hears something, and goes.
        answer = (
            self.trace(text, socket, headers)
            if path == "/api/trace"
            else self.server.request("POST", path, text, {**KEY, **headers})
        )
        socket.close()
        other.close()
        return answer

    def trace(self, text, socket, headers):
        connection = HTTPConnection(self.server.host, self.server.port, timeout=PATIENCE)
        connection.request("POST", "/api/trace", text, {**KEY, **headers})
        response = connection.getresponse()
        if response.status == 200 and response.headers["Content-Type"] == "application/x-ndjson":
            socket.send(json.dumps({"id": 9, "rpc": {"method": "x"}}))
            self.server.request("POST", "/api/disconnect", json.dumps({"user": "42", "disconnect": {"code": 4000, "reason": "bye"}}), KEY)
        answer = Answer(response)
        connection.close()
        return answer


@pytest.fixture
def stage(serve, tmp_path):
    return Stage(serve, tmp_path)


def examples(method):
    for kind, content in method["requestBody"]["content"].items():
        for name, example in content["examples"].items():
            yield kind, name, example["value"]


def content_of(method, answer):
    """The described content of an answer."""
    kind = answer.headers["Content-Type"]
    response = method["responses"][str(answer.status)]
    if "$ref" in response:
        response = DOCUMENT["components"]["responses"][name_of(response["$ref"])]
    return response["content"][kind]["schema"]


def check_answer(schema, answer, seen):
    """Compares an answer with its schema; returns its parts."""
    if "$ref" in schema:
        parts = [(answer.json(), name_of(schema["$ref"]))]
    elif "anyOf" in schema:
        # Errors of the API have numbers.
        value = answer.json()
        parts = [(value, "Error" if isinstance(value.get("code"), int) else "Refusal")]
    else:
        name = name_of(schema["contentSchema"]["$ref"])
        parts = [(json.loads(line), name) for line in answer.body.splitlines()]
    for value, name in parts:
        check(value, name)
        look(value, {"$ref": f"#/{name}"}, seen)
    return [value for value, _ in parts]


def test_it_is_an_openapi_document():
    validate(DOCUMENT, cls=OpenAPIV31SpecValidator)
    for name, schema in SCHEMAS.items():
        Draft202012Validator.check_schema(schema)
        used = json.dumps(DOCUMENT).count(f'"#/components/schemas/{name}"')
        assert used, f"{name} is used nowhere"


def test_the_server_tells_it(serve, tmp_path):
    assert serve().request("GET", "/api/openapi.json").json() == DOCUMENT
    config = tmp_path / "myriad.toml"
    config.write_text('[http_api]\nkey = "k"\nhandler_prefix = "/push/v1"')
    server = serve("--config", str(config), dev=False)
    there = server.request("GET", "/push/v1/openapi.json").json()
    assert set(there["paths"]) == {"/push/v1" + path.removeprefix("/api") for path in DOCUMENT["paths"]}
    assert server.request("POST", "/push/v1/publish", '{"channel": "a", "data": 1}', KEY).json() == {"result": {}}
    assert server.request("POST", "/push/v1", '{"method": "publish", "params": {"channel": "a", "data": 1}}', KEY).json() == {"result": {}}
    assert server.request("POST", "/api/publish", '{"channel": "a", "data": 1}', KEY).status == 404
    assert server.metric('myriad_api_requests_total{route="/api/publish",status="200"}') == 1


def test_examples_and_their_answers_are_as_described(stage):
    seen = set()
    for path, method in METHODS.items():
        codes = set()
        for kind, name, value in examples(method):
            schema = method["requestBody"]["content"][kind]["schema"]
            if kind == "application/json":
                if name not in ("no_channel", "too_long", "no_data", "bad_expression"):
                    check(value, name_of(schema["$ref"]))
                look(value, schema, seen)
            else:
                for line in value.splitlines():
                    check(json.loads(line), name_of(schema["contentSchema"]["$ref"]))
                    look(json.loads(line), schema["contentSchema"], seen)
            for headers in [{}, {"X-Centrifugo-Error-Mode": "transport"}]:
                answer = stage.post(path, value, **headers)
                for part in check_answer(content_of(method, answer), answer, seen):
                    error = part.get("error", part if answer.status != 200 else {})
                    if path not in ("/api/batch", "/api") and error:
                        codes.add(error["code"])
                        assert answer.status == (TRANSPORT[error["code"]] if headers else 200), answer
                        words = ("bad", "no_", "off", "unknown", "over", "in_the_past", "too_long", "other", "nobody")
                        assert name.startswith(words), (path, name, error)
        assert codes <= set(method["x-errors"]), path
        for extra in set(method["x-errors"]):
            assert str(TRANSPORT[extra]) in method["responses"], (path, extra)
    all_fields = set()
    for name in SCHEMAS:
        described({"$ref": f"#/{name}"}, all_fields)
    # What is refused is looked at below.
    all_fields = {field for field in all_fields if not field.startswith("Refusal.")}
    assert sorted(all_fields - seen) == sorted(UNSEEN), "no example has them"


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, "{}", 401),
        ({"X-API-Key": "wrong"}, "{}", 401),
        (KEY, "{", 400),
        ({"Authorization": "apikey k"}, "[]", 400),
        (KEY, "x" * 1_100_000, 413),
    ],
)
def test_refusals_are_as_described(serve, tmp_path, headers, body, status):
    server = Stage(serve, tmp_path).server
    for path, method in METHODS.items():
        if status == 413 and path in ("/api", "/api/batch"):
            continue
        answer = server.request("POST", path, body, headers)
        assert answer.status == status, path
        check_answer(content_of(method, answer), answer, set())
