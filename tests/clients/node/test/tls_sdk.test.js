// The SDK and clients of streams over TLS: by WebSocket, and over HTTP where WebSocket does not get through.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { json } from 'node:stream/consumers';
import { DurableStream } from '@durable-streams/client';
import { Authority, withTls } from '../certificates.js';
import { emulated } from '../emulated.js';
import { RIGHTS, restart, withConfig, withSdk } from '../sdk.js';
import { onBothDrivers } from '../server.js';
import { addressOf, catchUp, LIVE, Reader } from '../streams.js';

const HISTORY = [
  ...withTls('--message-bytes-max', '1MiB', '--outbound-bytes-max', '8MiB'),
  ...withConfig(
    '[channel.without_namespace]',
    'history_size = 1000',
    'history_ttl = "300s"',
    'force_recovery = true',
    'presence = true',
    ...RIGHTS,
  ),
];

withSdk('over TLS, channels have one order, history and members', HISTORY, async ({ server, client }) => {
  const clients = [client(), client()];
  const ids = [];
  for (const one of clients) ids.push(await one.connect());
  const rooms = [];
  for (const one of clients) rooms.push(await one.subscribe('room'));
  await Promise.all(rooms.map(async (room, sender) => {
    for (let round = 0; round < 25; round++) await room.publish({ sender, round, text: 'käse\n' });
  }));
  await server.publish('room', { data: 'from the API' });
  const order = await rooms[0].values(51);
  assert.deepEqual(await rooms[1].values(51), order);
  assert.equal(order.at(-1), 'from the API');
  assert.deepEqual((await rooms[0].history({ limit: 100 })).values, order);
  const { clients: members } = await clients[1].centrifuge.presence('room');
  assert.deepEqual(Object.keys(members).sort(), [...ids].sort());
  assert.equal(await server.metric('myriad_tls_connections{version="1.3"}'), 2);
});

withSdk('over TLS, a large message goes both ways', HISTORY, async ({ client }) => {
  const one = client();
  await one.connect();
  const room = await one.subscribe('room');
  const large = 'x'.repeat(900_000);
  await room.publish(large);
  assert.ok((await room.value()) === large);
});

withSdk('over TLS, what was missed comes after each cut', HISTORY, async ({ server, client }) => {
  const one = client();
  await one.connect();
  await one.events.next('connecting');
  const room = await one.subscribe('room');
  for (let round = 0; round < 10; round++) {
    one.cut();
    await one.events.next('connecting');
    await server.publish('room', { data: round });
    assert.equal(await room.value(), round);
    const { wasRecovering, recovered } = await room.events.next('subscribed');
    assert.deepEqual([wasRecovering, recovered], [true, true]);
  }
});

withSdk('over TLS, a server that starts again tells that something was missed', HISTORY, async ({ server, client }) => {
  const one = client();
  await one.connect();
  await one.events.next('connecting');
  const room = await one.subscribe('room');
  await server.publish('room', { data: 'before' });
  assert.equal(await room.value(), 'before');
  const successor = await restart(server, ...HISTORY);
  try {
    const { code, reason } = await one.events.next('connecting');
    assert.deepEqual([code, reason], [3001, 'shutdown']);
    const again = await room.events.next('subscribed');
    assert.deepEqual([again.wasRecovering, again.recovered], [true, false]);
    await successor.publish('room', { data: 'after' });
    assert.equal(await room.value(), 'after');
  } finally {
    one.centrifuge.disconnect();
    await successor.stop();
  }
});

emulated('over TLS, channels and recovery', HISTORY, async ({ server, client, kind }) => {
  const one = await client();
  const connected = await one.connect();
  assert.equal(connected.transport, kind.transport);
  const room = await one.subscribe('room');
  for (let number = 0; number < 20; number++) await room.publish({ number, text: 'käse\n' });
  assert.deepEqual(await room.values(20), Array.from({ length: 20 }, (_, number) => ({ number, text: 'käse\n' })));
  one.wire.cut();
  for (const number of [1, 2, 3]) await server.publish('room', { data: number });
  assert.notEqual((await one.events.next('connected')).client, connected.client);
  assert.deepEqual(await room.values(3), [1, 2, 3]);
  assert.equal((await room.history({ limit: 1, reverse: true })).values[0], 3);
});

onBothDrivers('over TLS, readers of a stream see what is appended', withTls(), async (server) => {
  const { fetch } = server;
  const url = addressOf(server, 'teams/a room');
  assert.match(url, /^https:/);
  const handle = await DurableStream.create({ url, contentType: 'application/json', fetch });
  const readers = await Promise.all(LIVE.map((live) => Reader.open(url, live, { fetch })));
  const expected = Array.from({ length: 50 }, (_, number) => ({ number }));
  for (const value of expected) await handle.append(JSON.stringify(value));
  for (const [index, reader] of readers.entries()) {
    assert.deepEqual(await reader.items.take(50), expected, `live: ${LIVE[index]}`);
  }
  assert.deepEqual((await catchUp(url, { fetch })).items, expected);
  await handle.close();
  for (const reader of readers) assert.equal(await reader.closed, undefined);
});

const DEVICES = new Authority('devices');
const device = DEVICES.issue(['DNS:scale-7.example', 'URI:spiffe://example/scale/7']);
const nameless = DEVICES.issue(['email:someone@example.com']);
const pair = ({ cert, key }) => ({ cert, key });
const namedBy = (kind) => withTls('--tls-client-ca', DEVICES.file, '--tls-client-auth', 'optional', '--tls-client-user', kind);

const NAMED = [
  ...namedBy('dns'),
  ...withConfig(
    '[client]',
    'allow_anonymous_connect_without_token = true',
    '[channel.without_namespace]',
    'presence = true',
    'allow_user_limited_channels = true',
    ...RIGHTS,
  ),
];

withSdk("a client's certificate names its user", NAMED, async ({ client }) => {
  for (const maxVersion of ['TLSv1.3', 'TLSv1.2']) {
    const users = new Map([[pair(device), 'scale-7.example'], [pair(nameless), ''], [{}, '']]);
    for (const [certificate, user] of users) {
      const one = client({ tls: { maxVersion, ...certificate } });
      const id = await one.connect();
      await one.subscribe('room');
      const { clients } = await one.centrifuge.presence('room');
      assert.equal(clients[id].user, user, maxVersion);
      one.centrifuge.disconnect();
    }
    const owner = client({ tls: { maxVersion, ...pair(device) } });
    await owner.connect();
    const inbox = await owner.subscribe('inbox#scale-7.example');
    await inbox.publish('for me');
    assert.equal(await inbox.value(), 'for me');
  }
});

// With a key it is no development server, which would let everybody in.
const STRICT = [...namedBy('uri'), '--api-key', 'secret', ...withConfig('[channel.without_namespace]', ...RIGHTS)];

withSdk('without a name and a token, nobody connects', STRICT, async ({ client }) => {
  await client({ tls: pair(device) }).connect();
  const stranger = client({ tls: pair(nameless) });
  stranger.centrifuge.connect();
  const { code, reason } = await stranger.events.next('disconnected');
  assert.deepEqual([code, reason], [3501, 'bad request']);
});

// An application that grants what the certificate says.
const asked = [];
const application = createServer(async (request, response) => {
  await json(request);
  asked.push(request.headers['myriad-certificate-user'] ?? 'nobody');
  response.setHeader('Content-Type', 'application/json');
  response.end(JSON.stringify({ result: { user: `of ${asked.at(-1)}` } }));
});
await new Promise((resolve) => application.listen(0, '127.0.0.1', resolve));
application.unref();

const GRANTED = [
  ...namedBy('common-name'),
  ...withConfig(
    '[client.proxy.connect]',
    'enabled = true',
    `endpoint = "http://127.0.0.1:${application.address().port}/connect"`,
    'http_headers = ["Myriad-Certificate-User"]',
    '[channel.without_namespace]',
    'presence = true',
    ...RIGHTS,
  ),
];

onBothDrivers('the application is told whom a certificate names, and not what the client wrote', GRANTED, async (server) => {
  const headers = { 'Myriad-Certificate-User': 'somebody else' };
  for (const [certificate, user] of [[pair(device), 'scale-7.example'], [{}, 'nobody']]) {
    const one = await server.connect('/connection/websocket', { headers, ...certificate });
    one.socket.send(JSON.stringify({ id: 1, connect: {} }));
    assert.ok(JSON.parse(await one.next()).connect.client);
    assert.equal(asked.pop(), user);
    await one.close();
  }
});
