// How connections and subscriptions end, and what the SDK makes of each code: it comes back, or stays away.

import assert from 'node:assert/strict';
import { setTimeout } from 'node:timers/promises';
import { withConfig, withSdk } from '../sdk.js';

withSdk('a server that drains tells its clients to come back', [], async ({ server, client }) => {
  const one = client();
  await one.connect();
  await one.events.next('connecting');
  await server.stop();
  const { code, reason } = await one.events.next('connecting');
  assert.deepEqual([code, reason], [3001, 'shutdown']);
  assert.equal(one.events.untaken('disconnected').length, 0);
});

withSdk('a client that breaks the protocol stays away', [], async ({ client }) => {
  const connected = async () => {
    const one = client();
    await one.connect();
    return one;
  };
  const bytes = (...octets) => Buffer.from(octets);
  for (const [what, json, protobuf] of [
    ['what nobody can read', 'hello', bytes(0xff, 0xff)],
    ['nothing', '', bytes()],
    ['a second connect', '{"id":9,"connect":{}}', bytes(4, 0x08, 9, 0x22, 0)],
    ['a pong to no ping', '{}', bytes(0)],
    ['a subscribe without a channel', '{"id":9,"subscribe":{}}', bytes(4, 0x08, 9, 0x2a, 0)],
    ['a refresh without a token', '{"id":9,"refresh":{}}', bytes(4, 0x08, 9, 0x72, 0)],
  ]) {
    const one = await connected();
    one.sockets.at(-1).send(one.encoding.name === 'JSON' ? json : protobuf);
    assert.deepEqual(await one.events.next('disconnected'), { code: 3501, reason: 'bad request' }, what);
  }
});

withSdk('what the server does not have yet has its codes', [], async ({ client, encoding }) => {
  const stranger = client({ token: 'a.b.c' });
  stranger.centrifuge.connect();
  assert.deepEqual(await stranger.events.next('disconnected'), { code: 3500, reason: 'invalid token' });
  const one = client();
  await one.connect();
  await one.centrifuge.send(encoding.encode({ any: 'thing' }));
  assert.deepEqual(await one.events.next('disconnected'), { code: 3508, reason: 'not available' });
});

withSdk('a message over the limit stops its client', ['--message-bytes-max', '1KiB'], async ({ client }) => {
  const one = client();
  await one.connect();
  await assert.rejects(one.publish('room', 'x'.repeat(2000)));
  assert.deepEqual(await one.events.next('disconnected'), { code: 3, reason: 'message size limit exceeded' });
});

withSdk('bytes that are not JSON are left out for JSON clients only', [], async ({ server, client, encoding }) => {
  const one = client();
  await one.connect();
  const room = await one.subscribe('room');
  await server.publish('room', { b64data: '/wAB' });
  if (encoding.name !== 'JSON') {
    assert.deepEqual([...(await room.events.next('publication')).data], [0xff, 0x00, 0x01]);
  }
  await server.publish('room', { b64data: Buffer.from('{"a":1}').toString('base64') });
  assert.deepEqual(await room.value(), { a: 1 });
});

const ONE_CONNECTION = withConfig(
  '[client]',
  'user_id_http_header = "X-User"',
  '[client.subscribe_to_user_personal_channel]',
  'enabled = true',
  'single_connection = true',
);

// Ages are compared in ticks of 50 ms: of two connections in the same one, either may be the newer.
const nextTick = () => setTimeout(100);

withSdk('a newer connection of the user ends the older one, which stays away', ONE_CONNECTION, async ({ client }) => {
  const older = client({ user: '42' });
  await older.connect();
  await nextTick();
  const newer = client({ user: '42' });
  await newer.connect();
  assert.equal((await older.events.next('disconnected')).code, 3504);
  // It does not come back by itself, and so does not end the newer one in turn.
  assert.equal(older.sockets.length, 1);
  await newer.publish('room', 1).catch(({ code }) => assert.equal(code, 103));
  assert.equal(newer.events.untaken('disconnected').length, 0);
  // The application may bring it back, which ends the other.
  await nextTick();
  await older.connect();
  assert.equal((await newer.events.next('disconnected')).code, 3504);
});

const IMPATIENT = withConfig('[client]', 'ping_interval = "1s"', 'pong_timeout = "500ms"', 'stale_close_delay = "500ms"');

withSdk('who does not connect, or does not answer pings, is sent away', IMPATIENT, async ({ server, client, encoding }) => {
  const query = encoding.name === 'JSON' ? '' : '?format=protobuf';
  const stale = await server.connect(`/connection/websocket${query}`);
  assert.equal((await stale.closed).code, 3502);

  const deaf = client();
  await deaf.connect();
  await deaf.events.next('connecting');
  // The SDK's pongs do not arrive.
  deaf.sockets.at(-1).send = () => {};
  assert.equal((await deaf.events.next('connecting')).code, 3012);
  await deaf.events.next('connected');
});

withSdk('a client notices that the server is dead', IMPATIENT, async ({ server, client }) => {
  const one = client({ maxServerPingDelay: 200 });
  await one.connect();
  await one.events.next('connecting');
  server.signal('SIGSTOP');
  try {
    const { code, reason } = await one.events.next('connecting');
    assert.deepEqual([code, reason], [2, 'no ping']);
  } finally {
    server.signal('SIGCONT');
  }
  await one.events.next('connected');
});
