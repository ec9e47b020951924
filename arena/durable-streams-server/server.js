// The reference server of the Durable Streams protocol, in memory. The library's handler answers everything but GET /stats,
// which the arena asks. It listens here, and not itself, because it has no option for the backlog.
import { createServer } from "node:http";
import { DurableStreamTestServer } from "@durable-streams/server";

const BACKLOG = 4096;
const host = process.env.HOST ?? "127.0.0.1";
const port = Number(process.env.PORT ?? 9000);

const library = new DurableStreamTestServer({
  port: 0,
  host,
  longPollTimeout: Number(process.env.HOLD_MAX_MS ?? 90_000),
  compression: false,
});
await library.start();
const [handle] = library.server.listeners("request");

// Requests that are held: of long polls until their answer, of events until their end.
let held = 0;
function left() {
  held -= 1;
}

const server = createServer((request, response) => {
  if (request.url === "/stats") {
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ connections: held }));
    return;
  }
  if (request.url.includes("live=")) {
    held += 1;
    response.once("close", left);
  }
  handle(request, response);
});
server.listen({ host, port, backlog: BACKLOG });

process.on("SIGTERM", () => process.exit(0));
