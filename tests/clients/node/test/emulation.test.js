// The SDK where WebSocket does not get through: the same channels over HTTP.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { emulated } from '../emulated.js';
import { RIGHTS, withConfig } from '../sdk.js';
import { hmacToken, inSeconds } from '../tokens.js';

emulated('a client has what one over WebSocket has', [], async ({ server, client, kind }) => {
  const [one, other] = [await client(), await client()];
  const connected = await one.connect();
  assert.equal(connected.transport, kind.transport);
  await other.connect();
  const room = await one.subscribe('room');
  const others = await other.subscribe('room');
  const { clients } = await room.sdk.presence();
  assert.equal(Object.keys(clients).length, 2);
  for (let number = 0; number < 20; number++) await room.publish({ number, text: 'käse\n' });
  await server.publish('room', { data: 'from the API' });
  const expected = [...Array.from({ length: 20 }, (_, number) => ({ number, text: 'käse\n' })), 'from the API'];
  assert.deepEqual(await room.values(21), expected);
  assert.deepEqual(await others.values(21), expected);
  const page = await room.history({ limit: 2, reverse: true });
  assert.deepEqual(page.values, ['from the API', expected[19]]);
  await assert.rejects(one.centrifuge.rpc('method', kind.encode(1)), { code: 108 });
  room.sdk.unsubscribe();
  assert.equal((await others.sdk.presenceStats()).numUsers, 1);
  assert.equal(await server.metric(`myriad_streams{transport="${kind.transport}"}`), 2);
});

emulated('what was missed comes after a cut', [], async ({ server, client }) => {
  const one = await client();
  const first = await one.connect();
  const room = await one.subscribe('room');
  await server.publish('room', { data: 1 });
  assert.equal(await room.value(), 1);
  one.wire.cut();
  await server.publish('room', { data: 2 });
  await server.publish('room', { data: 3 });
  assert.notEqual((await one.events.next('connected')).client, first.client);
  assert.deepEqual(await room.values(2), [2, 3]);
  await server.publish('room', { data: 4 });
  assert.equal(await room.value(), 4);
});

// Time enough for an answer, which is a request of its own, where the machine is slow.
const FAST = ['--ping-interval', '2s', '--pong-timeout', '2s'];

emulated('pings are answered', FAST, async ({ server, client }) => {
  const one = await client();
  await one.connect();
  // The second ping comes when the answer to the first is due: a client that does not answer has ended.
  while ((await server.metric('myriad_pings_total')) < 2) await sleep(50);
  const room = await one.subscribe('room');
  await room.publish('still here');
  assert.equal(await room.value(), 'still here');
  assert.equal(one.events.untaken('disconnected').length + one.events.untaken('connecting').length, 1);
});

emulated('a close code says whether the client comes back', [], async ({ server, client }) => {
  const one = await client();
  const end = async (id, code) => {
    const response = await fetch(`http://${server.address}/api/disconnect`, {
      method: 'POST',
      body: JSON.stringify({ user: '', client: id, disconnect: { code, reason: 'a test' } }),
    });
    assert.equal(response.status, 200);
  };
  const first = await one.connect();
  await one.events.next('connecting');
  await end(first.client, 4000);
  const lost = await one.events.next('connecting');
  assert.deepEqual([lost.code, lost.reason], [4000, 'a test']);
  const second = await one.events.next('connected');
  await end(second.client, 4500);
  assert.deepEqual(await one.events.next('disconnected'), { code: 4500, reason: 'a test' });
});

const SECRET = 'a secret of the tests, long enough to be one';
const HMAC = withConfig(
  '[client]',
  'expired_close_delay = "1s"',
  '[client.token]',
  `hmac_secret_key = "${SECRET}"`,
  '[channel.without_namespace]',
  'presence = true',
  ...RIGHTS,
);
const token = (claims) => hmacToken(SECRET, claims);

emulated('a connection goes on as long as it is refreshed', HMAC, async ({ server, client }) => {
  const tokens = [1.2, 600].map((seconds) => token({ sub: '42', exp: inSeconds(seconds) }));
  let refreshed;
  const done = new Promise((resolve) => { refreshed = resolve; });
  const one = await client({
    getToken: async () => {
      if (tokens.length === 1) refreshed();
      return tokens.shift();
    },
  });
  await one.connect();
  const room = await one.subscribe('room');
  await done;
  await server.publish('room', { data: 'after the refresh' });
  assert.equal(await room.value(), 'after the refresh');
  assert.equal(one.events.untaken('disconnected').length, 0);
  const away = await client({ token: 'x' });
  away.centrifuge.connect();
  assert.equal((await away.events.next('disconnected')).code, 3500);
});
