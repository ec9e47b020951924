// Clients without an SDK: an EventSource, curl, and a WebSocket, each with nothing but its connect request.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { EventSource } from 'eventsource';
import { Mailbox } from '../mailbox.js';
import { onBothDrivers } from '../server.js';

// Clients of --dev may not name channels; an API call subscribes them.
async function subscribe(server, client, channel) {
  const response = await fetch(`http://${server.address}/api/subscribe`, {
    method: 'POST',
    body: JSON.stringify({ user: '', client, channel }),
  });
  assert.equal(response.status, 200);
}

// What every one of these clients is told, in its order.
async function follow(server, next) {
  const { connect } = await next();
  assert.match(connect.client, /^[0-9a-f-]{36}$/);
  // The connection's name for the API, as in the original.
  assert.match(connect.session, /^[0-9a-f-]{36}$/);
  await subscribe(server, connect.client, 'room');
  const { channel, subscribe: subscribed } = await next();
  assert.equal(channel, 'room');
  assert.ok(subscribed);
  await server.publish('room', { data: { text: 'käse\n' } });
  assert.deepEqual((await next()).pub.data, { text: 'käse\n' });
  server.signal();
  assert.deepEqual((await next()).disconnect, { code: 3001, reason: 'shutdown' });
}

// Pushes to wait for, from their texts. Pings are none.
function pushes() {
  const mailbox = new Mailbox();
  return { put: (text) => text !== '{}' && mailbox.put(JSON.parse(text)), next: () => mailbox.next() };
}

onBothDrivers('an EventSource', [], async (server) => {
  const { put, next } = pushes();
  const source = new EventSource(`http://${server.address}/connection/uni_sse`);
  source.onmessage = ({ data }) => put(data);
  try {
    await follow(server, next);
  } finally {
    source.close();
  }
});

for (const [path, args] of [
  ['uni_http_stream', ['--data', '{}']],
  ['uni_sse', ['--get', '--data-urlencode', 'cf_connect={"name":"curl"}']],
]) {
  onBothDrivers(`curl of ${path}`, [], async (server) => {
    const { put, next } = pushes();
    const curl = spawn('curl', ['--silent', '--no-buffer', ...args, `http://${server.address}/connection/${path}`]);
    createInterface({ input: curl.stdout }).on('line', (line) => {
      const text = path === 'uni_sse' ? line.replace(/^data: /, '') : line;
      if (text.trim() !== '' && !line.startsWith('id: ')) put(text);
    });
    const ended = new Promise((resolve) => curl.on('exit', resolve));
    await follow(server, next);
    assert.equal(await ended, 0, 'the body ends as it should');
  });
}

onBothDrivers('a WebSocket', [], async (server) => {
  const client = await server.connect('/connection/uni_websocket');
  client.socket.send('{}');
  await follow(server, async () => {
    for (;;) {
      const text = await client.next();
      if (text !== '{}') return JSON.parse(text);
    }
  });
  assert.equal((await client.closed).code, 3001);
});

onBothDrivers('a page of another origin', ['--allowed-origins', 'https://app.example'], async (server) => {
  const ask = (method, path, origin, headers = {}) =>
    fetch(`http://${server.address}${path}`, { method, headers: { Origin: origin, ...headers } });
  const preflight = { 'Access-Control-Request-Method': 'POST', 'Access-Control-Request-Headers': 'content-type' };
  for (const path of ['/connection/http_stream', '/connection/sse', '/emulation', '/connection/uni_sse']) {
    const allowed = await ask('OPTIONS', path, 'https://app.example', preflight);
    assert.equal(allowed.status, 204, path);
    assert.equal(allowed.headers.get('access-control-allow-origin'), 'https://app.example');
    assert.equal(allowed.headers.get('access-control-allow-credentials'), 'true');
    assert.equal(allowed.headers.get('access-control-allow-headers'), 'content-type');
    assert.equal((await ask('OPTIONS', path, 'https://other.example', preflight)).status, 403);
  }
  assert.equal((await ask('GET', '/connection/uni_sse', 'https://other.example')).status, 403);
  const stream = await ask('GET', '/connection/uni_sse', 'https://app.example');
  assert.equal(stream.headers.get('access-control-allow-origin'), 'https://app.example');
  await stream.body.cancel();
});

onBothDrivers('commands for nobody', [], async (server) => {
  const post = (body, type = 'application/json') =>
    fetch(`http://${server.address}/emulation`, { method: 'POST', body, headers: { 'Content-Type': type } });
  const status = async (...args) => (await post(...args)).status;
  const response = await fetch(`http://${server.address}/connection/http_stream`, {
    method: 'POST',
    body: '{"id":1,"connect":{}}',
  });
  const { value } = await response.body.getReader().read();
  const { node, session } = JSON.parse(new TextDecoder().decode(value)).connect;
  const commands = (fields) => JSON.stringify({ node, session, data: '{}', ...fields });
  assert.equal(await status(commands({ session: '00000000-0000-8000-8000-000000000000' })), 204);
  assert.equal(await status(commands({ node: 'another' })), 404);
  assert.equal(await status('{}'), 404);
  for (const broken of ['', '[]', '{', commands({ data: {} })]) assert.equal(await status(broken), 400, broken);
  assert.equal(await status(commands({}), 'application/octet-stream'), 400);
  assert.equal(await status(commands({ data: 'x'.repeat(65537) })), 413);
  assert.equal(await status('x'.repeat(200_000)), 413);
  // Those that reach it: a pong without a ping ends it.
  assert.equal(await status(commands({})), 204);
});
