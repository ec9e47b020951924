// Node.js with ws. One event loop; several processes for several cores or more descriptors.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { WebSocketServer } from "ws";

const { HOST = "127.0.0.1", PORT = "9000", MODE = "push", PUSH_EVERY_MS = "0", TLS_CERTIFICATE, TLS_KEY } = process.env;
const MESSAGE_BYTES_MAX = 131_072;
const REQUEST_BYTES_MAX = 4_096;

const sockets = new WebSocketServer({
  noServer: true,
  perMessageDeflate: false,
  maxPayload: MESSAGE_BYTES_MAX,
  // What is thrown away need not be checked.
  skipUTF8Validation: MODE !== "echo",
});

sockets.on("connection", (socket) => {
  // A reset or a protocol error is followed by `close`; without a listener it would end the process.
  socket.on("error", () => {});
  if (MODE === "echo") socket.on("message", (data, binary) => socket.send(data, { binary }));
});

function broadcast(data) {
  let count = 0;
  for (const socket of sockets.clients) {
    if (socket.readyState !== socket.OPEN) continue;
    socket.send(data, { binary: false });
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
  "GET /stats": (_, response) => answerConnections(response, sockets.clients.size),
  "POST /broadcast": async (request, response) => {
    const data = await body(request, MESSAGE_BYTES_MAX);
    if (data === null) tooLong(response);
    else answerConnections(response, broadcast(data));
  },
  "POST /request": async (request, response) => {
    const data = await body(request, REQUEST_BYTES_MAX);
    if (data === null) tooLong(response);
    else answer(response, 200, data);
  },
};

function respond(request, response) {
  const route = routes[`${request.method} ${request.url}`];
  if (!route) return answer(response, 404);
  // The client may go away in the middle of its body.
  Promise.resolve(route(request, response)).catch(() => response.destroy());
}

const server = TLS_CERTIFICATE
  ? createSecureServer({
    cert: readFileSync(TLS_CERTIFICATE),
    key: readFileSync(TLS_KEY),
    minVersion: "TLSv1.3",
    ciphers: "TLS_AES_128_GCM_SHA256",
  }, respond)
  : createServer(respond);

server.on("upgrade", (request, socket, head) => {
  if (request.url !== "/") return socket.end("HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n");
  sockets.handleUpgrade(request, socket, head, (opened) => sockets.emit("connection", opened));
});

if (Number(PUSH_EVERY_MS) > 0) {
  let tick = 0;
  setInterval(() => broadcast(Buffer.from(`tick ${(tick += 1)}`)), Number(PUSH_EVERY_MS));
}

server.listen({ host: HOST, port: Number(PORT), backlog: 4096 });
