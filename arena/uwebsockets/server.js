// uWebSockets.js. The broadcast is a publish to one topic that every connection is subscribed to: the C++ side
// frames the message once and walks the subscribers itself.

const uws = require("@trufflesuite/uws-js-unofficial");

const { HOST = "127.0.0.1", PORT = "9000", MODE = "push", PUSH_EVERY_MS = "0", TLS_CERTIFICATE, TLS_KEY } = process.env;
const MESSAGE_BYTES_MAX = 131_072;
const REQUEST_BYTES_MAX = 4_096;
const EVERYBODY = "everybody";
const BINARY = false;

const app = TLS_CERTIFICATE
  ? uws.SSLApp({
    cert_file_name: TLS_CERTIFICATE,
    key_file_name: TLS_KEY,
    // For many connections: OpenSSL's buffers are given back while a connection is idle.
    ssl_prefer_low_memory_usage: true,
  })
  : uws.App();

function broadcast(data) {
  app.publish(EVERYBODY, data, BINARY);
  return app.numSubscribers(EVERYBODY);
}

function answer(response, status, body = "") {
  response.cork(() => response.writeStatus(status).end(body));
}

const answerConnections = (response, connections) => answer(response, "200 OK", JSON.stringify({ connections }));

function withBody(response, bytesMax, use) {
  let parts = Buffer.alloc(0);
  let answered = false;
  response.onAborted(() => { answered = true; });
  response.onData((part, last) => {
    if (answered) return;
    if (parts.length + part.byteLength > bytesMax) {
      answered = true;
      response.cork(() => response.writeStatus("413 Payload Too Large").end("", true));
      return;
    }
    // The part's memory is the library's own and gone after this call; concat copies it.
    parts = Buffer.concat([parts, Buffer.from(part)]);
    if (!last) return;
    answered = true;
    use(parts);
  });
}

app.ws("/", {
  compression: uws.DISABLED,
  maxPayloadLength: MESSAGE_BYTES_MAX,
  // A message that would exceed it is dropped for that connection, so it must hold the largest and then some.
  maxBackpressure: 8 * MESSAGE_BYTES_MAX,
  idleTimeout: 0,
  sendPingsAutomatically: false,
  open: (socket) => socket.subscribe(EVERYBODY),
  message: MODE === "echo" ? (socket, message, binary) => socket.send(message, binary) : () => {},
});

app.get("/stats", (response) => answerConnections(response, app.numSubscribers(EVERYBODY)));
app.post("/broadcast", (response) =>
  withBody(response, MESSAGE_BYTES_MAX, (data) => answerConnections(response, broadcast(data))));
app.post("/request", (response) => withBody(response, REQUEST_BYTES_MAX, (data) => answer(response, "200 OK", data)));
app.any("/*", (response) => answer(response, "404 Not Found"));

if (Number(PUSH_EVERY_MS) > 0) {
  let tick = 0;
  setInterval(() => broadcast(`tick ${(tick += 1)}`), Number(PUSH_EVERY_MS));
}

app.listen(HOST, Number(PORT), uws.LIBUS_LISTEN_EXCLUSIVE_PORT, (listening) => {
  if (listening) return;
  console.error(`cannot listen on ${HOST}:${PORT}`);
  process.exit(1);
});
