// What a client of the SDK is given when it comes back: everything that it missed, or word that it is lost.

import assert from 'node:assert/strict';
import { RIGHTS, restart, withConfig, withSdk } from '../sdk.js';

const HISTORY = withConfig(
  '[client]',
  'recovery_max_publication_limit = 10000',
  '[channel.without_namespace]',
  'history_size = 10000',
  'history_ttl = "300s"',
  'force_recovery = true',
  ...RIGHTS,
);

// Four runs (two drivers, two encodings), each of five clients: 200 broken connections.
const CLIENTS = 5;
const CUTS = 10;

// Cuts a client's connection again and again: after some publications, and in every other round while it subscribes.
// Returns a function that reads up to "end".
async function readThroughCuts(client, index) {
  const room = await client.subscribe('busy');
  const resubscribed = [];
  room.sdk.on('subscribed', (context) => resubscribed.push(context));
  const values = [];
  for (let round = 0; round < CUTS; round++) {
    if (round % 2 === 0) values.push(...(await room.values(1 + ((index + round) % 4))));
    client.cut();
    await client.events.next('connecting');
    await client.events.next('connected');
  }
  return async () => {
    while (values.at(-1) !== 'end') values.push(await room.value());
    return { values, resubscribed };
  };
}

withSdk('every publication comes once and in order, through broken connections', HISTORY, async ({ server, client }) => {
  const readers = Array.from({ length: CLIENTS }, () => client());
  for (const reader of readers) {
    await reader.connect();
    await reader.events.next('connecting');
  }
  const publisher = client();
  await publisher.connect();

  let busy = true;
  let published = 0;
  const publishing = (async () => {
    while (busy) {
      published += 2;
      await Promise.all([publisher.publish('busy', published - 1), server.publish('busy', { data: published })]);
    }
  })();
  const finished = await Promise.all(readers.map(readThroughCuts));
  busy = false;
  await publishing;
  await server.publish('busy', { data: 'end' });

  const order = await (await publisher.subscribe('busy', { since: { offset: 0, epoch: '' } })).values(published + 1);
  const sorted = order.slice(0, -1).sort((a, b) => a - b);
  assert.deepEqual(sorted, Array.from({ length: published }, (_, index) => index + 1));
  for (const finish of finished) {
    const { values, resubscribed } = await finish();
    assert.deepEqual(values, order.slice(order.indexOf(values[0])));
    assert.ok(resubscribed.length > 0);
    for (const { wasRecovering, recovered } of resubscribed) assert.deepEqual([wasRecovering, recovered], [true, true]);
  }
  for (const reader of readers) assert.equal(reader.sockets.length, 1 + CUTS);
});

withSdk('who has only the first publication goes on from there', HISTORY, async ({ server, client }) => {
  const [one, other] = [client(), client()];
  await one.connect();
  await one.events.next('connecting');
  await other.connect();
  const room = await one.subscribe('room');
  assert.equal(room.context.streamPosition.offset, 0);
  await server.publish('room', { data: 'first' });
  const first = await room.events.next('publication');
  assert.deepEqual([one.encoding.decode(first.data), first.offset], ['first', 1]);
  one.cut();
  await one.events.next('connecting');
  await server.publish('room', { data: 'second' });
  const again = await room.events.next('subscribed');
  assert.deepEqual([again.wasRecovering, again.recovered], [true, true]);
  assert.equal(again.streamPosition.epoch, room.context.streamPosition.epoch);
  assert.equal(await room.value(), 'second');

  // Who was there before the first one recovers it too.
  const early = await other.subscribe('early');
  await miss(server, other, 'early', ['first']);
  assert.equal((await early.events.next('subscribed')).recovered, true);
  assert.deepEqual([await early.value(), early.events.untaken('publication').length], ['first', 0]);
  await server.publish('early', { data: 'second' });
  assert.equal(await early.value(), 'second');
});

withSdk('bytes among what was missed are left out for JSON clients only', HISTORY, async ({ server, client, encoding }) => {
  const one = client();
  await one.connect();
  await one.events.next('connecting');
  const room = await one.subscribe('room');
  await server.publish('room', { data: 1 });
  assert.equal(await room.value(), 1);
  one.centrifuge.disconnect();
  await one.events.next('disconnected');
  await server.publish('room', { b64data: '/wAB' });
  await server.publish('room', { data: 3 });
  one.centrifuge.connect();
  if (encoding.name !== 'JSON') {
    assert.deepEqual([...(await room.events.next('publication')).data], [0xff, 0x00, 0x01]);
  }
  assert.equal(await room.value(), 3);
  assert.equal((await room.events.next('subscribed')).recovered, true);
});

withSdk('a server that starts again tells its clients that they have missed something', HISTORY, async ({ server, client }) => {
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
    assert.notEqual(again.streamPosition.epoch, room.context.streamPosition.epoch);
    await successor.publish('room', { data: 'after' });
    assert.equal(await room.value(), 'after');
  } finally {
    one.centrifuge.disconnect();
    await successor.stop();
  }
});

const SHORT = withConfig(
  '[client]',
  'recovery_max_publication_limit = 10',
  '[channel.without_namespace]',
  'history_size = 5',
  'history_ttl = "300s"',
  'allow_recovery = true',
  ...RIGHTS,
  '[[channel.namespaces]]',
  'name = "latest"',
  'history_size = 1',
  'history_ttl = "300s"',
  'force_recovery = true',
  'force_recovery_mode = "cache"',
  ...RIGHTS,
);

// Keeps a client away while values are published.
async function miss(server, client, channel, values) {
  client.centrifuge.disconnect();
  await client.events.next('disconnected');
  for (const data of values) await server.publish(channel, { data });
  client.centrifuge.connect();
}

withSdk('more than history keeps is not recovered, and not hidden', SHORT, async ({ server, client }) => {
  const one = client();
  await one.connect();
  const room = await one.subscribe('room', { recoverable: true });
  assert.deepEqual([room.context.recoverable, room.context.wasRecovering], [true, false]);
  await miss(server, one, 'room', [1, 2, 3, 4, 5]);
  assert.deepEqual(await room.values(5), [1, 2, 3, 4, 5]);
  assert.equal((await room.events.next('subscribed')).recovered, true);
  await miss(server, one, 'room', [6, 7, 8, 9, 10, 11]);
  const lost = await room.events.next('subscribed');
  assert.deepEqual([lost.wasRecovering, lost.recovered, lost.streamPosition.offset], [true, false, 11]);
  await server.publish('room', { data: 12 });
  assert.equal(await room.value(), 12);
});

withSdk('a subscriber that cannot go on from its position loads its state again', SHORT, async ({ server, client }) => {
  const one = client();
  await one.connect();
  let loads = 0;
  const room = await one.subscribe('room', {
    recoverable: true,
    getState: async () => {
      loads++;
      const { offset, epoch } = await one.centrifuge.history('room', { limit: 0 });
      return { offset, epoch };
    },
  });
  await miss(server, one, 'room', [1, 2, 3, 4, 5, 6, 7]);
  const again = await room.events.next('subscribed');
  assert.deepEqual([loads, again.recovered, again.streamPosition.offset], [2, true, 7]);
});

withSdk('in cache mode the newest publication comes alone', SHORT, async ({ server, client }) => {
  const one = client();
  await one.connect();
  await server.publish('latest:price', { data: 0 });
  const price = await one.subscribe('latest:price');
  await miss(server, one, 'latest:price', [1, 2, 3]);
  assert.equal((await price.events.next('subscribed')).recovered, true);
  assert.equal(await price.value(), 3);
  await server.publish('latest:price', { data: 4 });
  assert.equal(await price.value(), 4);
  await miss(server, one, 'latest:price', []);
  assert.equal((await price.events.next('subscribed')).recovered, true);
  assert.equal(price.events.untaken('publication').length, 0);
});

const PERSONAL = withConfig(
  '[client]',
  'user_id_http_header = "X-User"',
  '[client.subscribe_to_user_personal_channel]',
  'enabled = true',
  '[channel.without_namespace]',
  'history_size = 100',
  'history_ttl = "300s"',
  'force_recovery = true',
  'presence = true',
  'join_leave = true',
  'force_push_join_leave = true',
  'allow_presence_for_subscriber = true',
);

withSdk('the channel of a user is subscribed by the server, and recovers', PERSONAL, async ({ server, client }) => {
  const one = client({ user: '42' });
  const id = await one.connect();
  const made = await one.events.next('subscribed');
  assert.deepEqual([made.channel, made.recoverable], ['#42', true]);
  const joined = await one.events.next('join');
  assert.deepEqual([joined.channel, joined.info.client, joined.info.user], ['#42', id, '42']);
  await server.publish('#42', { data: 1 });
  const first = await one.events.next('publication');
  assert.deepEqual([first.channel, one.encoding.decode(first.data)], ['#42', 1]);
  await miss(server, one, '#42', [2, 3]);
  assert.equal((await one.events.next('subscribed')).recovered, true);
  for (const expected of [2, 3]) {
    assert.equal(one.encoding.decode((await one.events.next('publication')).data), expected);
  }
  assert.deepEqual(await one.centrifuge.presenceStats('#42'), { numClients: 1, numUsers: 1 });
});
