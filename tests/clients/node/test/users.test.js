// What the application does to connections of its users, as the SDK sees it.

import assert from 'node:assert/strict';
import { RIGHTS, withConfig, withSdk } from '../sdk.js';
import { hmacToken, inSeconds } from '../tokens.js';

const SECRET = 'a secret of the tests, long enough to be one';
const CONFIG = withConfig(
  '[client.token]',
  `hmac_secret_key = "${SECRET}"`,
  '[channel.without_namespace]',
  ...RIGHTS,
  '[[channel.namespaces]]',
  'name = "kept"',
  'history_size = 10',
  'history_ttl = "1m"',
  'force_recovery = true',
);
const token = (claims) => hmacToken(SECRET, claims);

async function api(server, method, request) {
  const response = await fetch(`http://${server.address}/api/${method}`, {
    method: 'POST',
    body: JSON.stringify(request),
  });
  const { result, error } = await response.json();
  assert.equal(error, undefined, JSON.stringify(error));
  return result;
}

withSdk('the application subscribes a user and ends the subscription', CONFIG, async ({ server, client, encoding }) => {
  const one = client({ token: token({ sub: '42' }) });
  await one.connect();
  await server.publish('kept:a', { data: 1 });
  await api(server, 'subscribe', {
    user: '42', channel: 'kept:a', data: { hello: 1 }, recover_since: { offset: 0, epoch: '' },
  });
  const subscribed = await one.events.next('subscribed');
  assert.equal(subscribed.channel, 'kept:a');
  assert.deepEqual(encoding.decode(subscribed.data), { hello: 1 });
  await server.publish('kept:a', { data: 2 });
  for (const value of [1, 2]) {
    const publication = await one.events.next('publication');
    assert.equal(publication.channel, 'kept:a');
    assert.equal(encoding.decode(publication.data), value);
  }
  await api(server, 'unsubscribe', { user: '42', channel: 'kept:a' });
  assert.equal((await one.events.next('unsubscribed')).channel, 'kept:a');
});

withSdk("the application ends a client's own subscription, which stays ended", CONFIG, async ({ server, client }) => {
  const one = client({ token: token({ sub: '42' }) });
  await one.connect();
  const room = await one.subscribe('room');
  await api(server, 'unsubscribe', { user: '42', channel: 'room' });
  const { code, reason } = await room.events.next('unsubscribed');
  assert.deepEqual([code, reason], [2000, 'server unsubscribe']);
  assert.equal(room.sdk.state, 'unsubscribed');
});

withSdk('a code of the application decides whether a client comes back', CONFIG, async ({ server, client }) => {
  const one = client({ token: token({ sub: '42' }) });
  await one.connect();
  const first = await one.events.next('connecting');
  assert.equal(first.reason, 'connect called');
  await api(server, 'disconnect', { user: '42', disconnect: { code: 4000, reason: 'moved' } });
  const { code, reason } = await one.events.next('connecting');
  assert.deepEqual([code, reason], [4000, 'moved']);
  await one.events.next('connected');
  await api(server, 'disconnect', { user: '42', disconnect: { code: 4500, reason: 'banned' } });
  const end = await one.events.next('disconnected');
  assert.deepEqual([end.code, end.reason], [4500, 'banned']);
});

withSdk('a connection that the application lets expire begins again', CONFIG, async ({ server, client }) => {
  const one = client({ getToken: async () => token({ sub: '42', exp: inSeconds(600) }) });
  await one.connect();
  await one.events.next('connecting');
  await api(server, 'refresh', { user: '42', expire_at: Math.ceil(inSeconds(60)) });
  const room = await one.subscribe('room');
  assert.equal(room.sdk.state, 'subscribed');
  await api(server, 'refresh', { user: '42', expired: true });
  assert.equal((await one.events.next('connecting')).code, 3005);
  await one.events.next('connected');
});

withSdk('a revoked token ends its connection and opens no other', CONFIG, async ({ server, client }) => {
  const shown = token({ sub: '42', jti: `t${Math.random()}` });
  const { jti } = JSON.parse(Buffer.from(shown.split('.')[1], 'base64url'));
  const one = client({ token: shown });
  const id = await one.connect();
  const { connections } = await api(server, 'connections', { user: '42' });
  assert.equal(connections[id].state.connection_token.uid, jti);
  await api(server, 'revoke_token', { uid: jti });
  assert.equal((await one.events.next('disconnected')).code, 3500);
  const other = client({ token: shown });
  other.centrifuge.connect();
  assert.equal((await other.events.next('disconnected')).code, 3500);
});
