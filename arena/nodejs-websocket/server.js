// Node.js with nodejs-websocket, as it was when it served the large tests of its day. It speaks WebSocket over plain
// sockets only, so the port is shared by what the first bytes ask for: an upgrade is its own, the rest is node:http's.

const http = require("node:http");
const net = require("node:net");
const websocket = require("nodejs-websocket");

const { HOST = "127.0.0.1", PORT = "9000", MODE = "push", PUSH_EVERY_MS = "0" } = process.env;
const MESSAGE_BYTES_MAX = 131_072;
const REQUEST_BYTES_MAX = 4_096;
const FRAME_HEAD_BYTES_MAX = 14;

websocket.setMaxBufferLength(MESSAGE_BYTES_MAX + FRAME_HEAD_BYTES_MAX);

const sockets = websocket.createServer((connection) => {
  // A reset or a protocol error is followed by `close`; without a listener it would end the process.
  connection.on("error", () => {});
  if (MODE === "echo") {
    connection.on("text", (text) => connection.sendText(text));
    connection.on("binary", (input) => input.pipe(connection.beginBinary()));
  } else {
    connection.on("binary", (input) => input.resume());
  }
});

function broadcast(text) {
  let count = 0;
  for (const connection of sockets.connections) {
    if (connection.readyState !== connection.OPEN) continue;
    connection.sendText(text);
    count += 1;
  }
  return count;
}

function answer(response, status, body = "") {
  response.writeHead(status, { "content-length": Buffer.byteLength(body) }).end(body);
}

const answerConnections = (response, connections) => answer(response, 200, JSON.stringify({ connections }));

async function body(request, bytesMax) {
  const parts = [];
  let bytes = 0;
  for await (const part of request) {
    bytes += part.length;
    if (bytes > bytesMax) return null;
    parts.push(part);
  }
  return Buffer.concat(parts);
}

function tooLong(response) {
  response.shouldKeepAlive = false;
  answer(response, 413);
}

const routes = {
  "GET /stats": (_, response) => answerConnections(response, sockets.connections.length),
  "POST /broadcast": async (request, response) => {
    const data = await body(request, MESSAGE_BYTES_MAX);
    if (data === null) tooLong(response);
    else answerConnections(response, broadcast(data.toString()));
  },
  "POST /request": async (request, response) => {
    const data = await body(request, REQUEST_BYTES_MAX);
    if (data === null) tooLong(response);
    else answer(response, 200, data);
  },
};

const requests = http.createServer((request, response) => {
  const route = routes[`${request.method} ${request.url}`];
  if (!route) return answer(response, 404);
  // The client may go away in the middle of its body.
  Promise.resolve(route(request, response)).catch(() => response.destroy());
});

function share(socket) {
  const ignore = () => {};
  socket.on("error", ignore);
  socket.once("readable", () => {
    const first = socket.read();
    if (first === null) return socket.destroy();
    const target = /^GET \/ [^]*\r\nupgrade: *websocket\r\n/i.test(first.toString("latin1")) ? sockets.socket : requests;
    target.emit("connection", socket);
    socket.unshift(first);
    socket.off("error", ignore);
  });
}

if (Number(PUSH_EVERY_MS) > 0) {
  let tick = 0;
  setInterval(() => broadcast(`tick ${(tick += 1)}`), Number(PUSH_EVERY_MS));
}

net.createServer({ noDelay: true }, share).listen({ host: HOST, port: Number(PORT), backlog: 4096 });
