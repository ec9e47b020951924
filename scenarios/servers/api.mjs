// A small API over HTTP, with faults in known numbers.
//
//   node api.mjs [--port PORT] [--keep MILLISECONDS] [--last COUNT] [--fail EVERY] [--timeout EVERY] [--drop EVERY] [--cut EVERY]
//
//   GET /items?page=N    200 with {"page":N,"items":[...]}
//   POST /items          201 with {"id":"..."}, the `id` of the request; 400 if it is no JSON object
//   GET /items/ID        404
//   GET /count           how often each of these came, by method, with the faults; and the connections
//
// --keep is how long a connection is kept behind an answer (60 s). --last is the request of a connection whose answer ends it (none). Of
// the requests to /items, counted from 1, every so many are answered 500 (--fail), or 408 with an end of the connection (--timeout);
// --drop ends the connection without an answer, and --cut in the middle of it. It prints its port, and serves until its standard
// input ends.

import http from "node:http";

const options = { port: 0, keep: 60000, last: 0, fail: 0, timeout: 0, drop: 0, cut: 0 };
const given = process.argv.slice(2);
for (let at = 0; at < given.length; at += 2) {
  options[given[at].replace("--", "")] = Number(given[at + 1]);
}

const counts = { connections: 0, GET: 0, POST: 0, fail: 0, timeout: 0, drop: 0, cut: 0 };
const ITEMS = Array.from({ length: 10 }, (_, number) => ({ number, name: `item ${number}` }));
let requests = 0;

function say(answer, status, value) {
  const body = JSON.stringify(value);
  answer.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
  answer.end(body);
}

// The fault of this request; none for most.
function fault() {
  requests += 1;
  const found = ["fail", "timeout", "drop", "cut"].find((name) => options[name] && requests % options[name] === 0);
  if (found) counts[found] += 1;
  return found;
}

function create(body, answer) {
  try {
    say(answer, 201, { id: JSON.parse(body).id });
  } catch {
    say(answer, 400, { error: "no JSON object" });
  }
}

function serve(request, body, answer) {
  const url = new URL(request.url, "http://api");
  if (url.pathname === "/count") return say(answer, 200, counts);
  if (url.pathname !== "/items") return say(answer, 404, { error: "no such item" });
  counts[request.method] = (counts[request.method] ?? 0) + 1;
  switch (fault()) {
    case "fail":
      return say(answer, 500, { error: "out of order" });
    case "timeout":
      answer.writeHead(408, { connection: "close" });
      return answer.end();
    case "drop":
      return request.socket.destroy();
    case "cut":
      answer.writeHead(200, { "content-length": 1000 });
      answer.write("{", () => request.socket.destroy());
      return;
  }
  if (request.method === "POST") return create(body, answer);
  say(answer, 200, { page: Number(url.searchParams.get("page")), items: ITEMS });
}

// Node's own keepAliveTimeout is about a second longer than it says, so as not to meet the next request.
function keep(socket) {
  socket.kept = setTimeout(() => socket.end(), options.keep);
}

const server = http.createServer((request, answer) => {
  clearTimeout(request.socket.kept);
  answer.on("finish", () => keep(request.socket));
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", () => serve(request, Buffer.concat(pieces).toString(), answer));
});
server.keepAliveTimeout = 0;
server.maxRequestsPerSocket = options.last;
server.on("connection", (socket) => {
  counts.connections += 1;
  socket.on("close", () => clearTimeout(socket.kept));
});
server.listen({ port: options.port, host: "127.0.0.1", backlog: 4096 }, () => console.log(server.address().port));
process.stdin.on("end", () => process.exit(0)).resume();
