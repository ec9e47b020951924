// Options of a namespace that an application sees through the SDK: deltas, filters, batches, slow consumers.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { RIGHTS, withConfig, withSdk } from '../sdk.js';

const HISTORY = ['history_size = 1000', 'history_ttl = "300s"', 'force_recovery = true', ...RIGHTS];

const NAMESPACES = withConfig(
  '[client]',
  'recovery_max_publication_limit = 1000',
  '[channel.without_namespace]',
  ...HISTORY,
  '[[channel.namespaces]]',
  'name = "delta"',
  'allowed_delta_types = ["fossil"]',
  'delta_publish = true',
  ...HISTORY,
  '[[channel.namespaces]]',
  'name = "tags"',
  'allow_tags_filter = true',
  ...HISTORY,
  '[[channel.namespaces]]',
  'name = "batched"',
  'batch_delay = "50ms"',
  ...HISTORY,
  '[[channel.namespaces]]',
  'name = "others"',
  'exclude_sender = true',
  ...HISTORY,
  '[[channel.namespaces]]',
  'name = "gap"',
  'slow_consumer = "gap_then_recover"',
  ...HISTORY,
);

// A state of some size of which little changes.
const state = (version) => ({
  version,
  users: Array.from({ length: 50 }, (_, index) => ({ id: index, name: `käse ${index} \u{1f9c0}` })),
  last: `\u{1f600}${version % 7}`,
});

// Publishes through the client and the API in turn.
async function publishStates(server, client, channel, from, to) {
  for (let version = from; version < to; version++) {
    if (version % 2) await client.publish(channel, state(version));
    else await server.publish(channel, { data: state(version) });
  }
}

withSdk('deltas give the same publications, also after a broken connection', NAMESPACES, async ({ server, client }) => {
  const [one, other] = [client(), client()];
  await one.connect();
  await other.connect();
  const room = await one.subscribe('delta:room', { delta: 'fossil' });
  const plain = await other.subscribe('delta:room');
  await publishStates(server, other, 'delta:room', 0, 20);
  const versions = (from, to) => Array.from({ length: to - from }, (_, index) => state(from + index));
  assert.deepEqual(await room.values(20), versions(0, 20));
  one.centrifuge.disconnect();
  await one.events.next('disconnected');
  await publishStates(server, other, 'delta:room', 20, 30);
  one.centrifuge.connect();
  assert.equal((await room.events.next('subscribed')).recovered, true);
  await publishStates(server, other, 'delta:room', 30, 40);
  assert.deepEqual(await room.values(20), versions(20, 40));
  assert.deepEqual(await plain.values(40), versions(0, 40));
  const { numPublications, numDeltaPayloads, compressionRatio } = room.sdk.deltaStats();
  assert.equal(numPublications, 40);
  assert.ok(numDeltaPayloads >= 37, `${numDeltaPayloads} deltas`);
  assert.ok(compressionRatio > 0.5, `${compressionRatio}`);
});

withSdk('who asks for deltas where there are none gets everything in full', NAMESPACES, async ({ server, client }) => {
  const one = client();
  await one.connect();
  const room = await one.subscribe('room', { delta: 'fossil' });
  await publishStates(server, one, 'room', 0, 4);
  assert.deepEqual(await room.values(4), [state(0), state(1), state(2), state(3)]);
});

withSdk('a filter passes publications by their tags, live and recovered', NAMESPACES, async ({ server, client }) => {
  const one = client();
  await one.connect();
  const publish = (ticker, price) =>
    server.publish('tags:prices', { data: price, tags: { ticker, price: String(price) } });
  const filter = {
    op: 'and',
    nodes: [
      { key: 'ticker', cmp: 'in', vals: ['BTC', 'ETH'] },
      { key: 'price', cmp: 'gte', val: '10' },
    ],
  };
  const prices = await one.subscribe('tags:prices', { tagsFilter: filter });
  const untagged = await one.subscribe('room');
  await publish('BTC', 9);
  await publish('BTC', 10);
  await publish('SOL', 11);
  await server.publish('tags:prices', { data: 12 });
  await publish('ETH', 13);
  const first = await prices.events.next('publication');
  assert.deepEqual([one.encoding.decode(first.data), first.tags], [10, { ticker: 'BTC', price: '10' }]);
  assert.equal(await prices.value(), 13);
  one.centrifuge.disconnect();
  await one.events.next('disconnected');
  await publish('SOL', 14);
  await publish('BTC', 15);
  one.centrifuge.connect();
  assert.equal(await prices.value(), 15);
  assert.equal((await prices.events.next('subscribed')).recovered, true);
  await publish('SOL', 16);
  await publish('ETH', 17);
  assert.equal(await prices.value(), 17);
  assert.equal(untagged.events.untaken('publication').length, 0);
});

withSdk('a filter that is not allowed or makes no sense is refused', NAMESPACES, async ({ client }) => {
  const one = client();
  await one.connect();
  for (const [channel, tagsFilter] of [
    ['room', { key: 'a', cmp: 'ex' }],
    ['tags:room', { key: 'a', cmp: 'unknown' }],
    ['tags:other', { op: 'not', nodes: [] }],
  ]) {
    const refused = one.subscription(channel, { tagsFilter });
    refused.sdk.subscribe();
    assert.deepEqual(await refused.events.next('unsubscribed'), { channel, code: 107, reason: 'bad request' });
  }
});

withSdk('publications that leave as one frame stay in order', NAMESPACES, async ({ server, client }) => {
  const one = client();
  await one.connect();
  const room = await one.subscribe('batched:room');
  const numbers = Array.from({ length: 100 }, (_, index) => index);
  await Promise.all(numbers.map((number) => room.publish(number)));
  const values = await room.values(100);
  assert.deepEqual(values.sort((a, b) => a - b), numbers);
  await Promise.all([server.publish('batched:room', { data: 'api' }), one.publish('batched:room', 'client')]);
  assert.deepEqual((await room.values(2)).sort(), ['api', 'client']);
});

withSdk('a sender that does not want its own publications finds them in history', NAMESPACES, async ({ client }) => {
  const [one, other] = [client(), client()];
  await one.connect();
  await other.connect();
  const [own, theirs] = [await one.subscribe('others:room'), await other.subscribe('others:room')];
  await own.publish('from one');
  await theirs.publish('from the other');
  assert.equal(await own.value(), 'from the other');
  assert.equal(await theirs.value(), 'from one');
  assert.deepEqual((await own.history({ limit: 10 })).values, ['from one', 'from the other']);
});

// Publishes until a client that does not read has too much queued, as a metric says. Then lets it read. Returns how many.
async function overrun(server, client, channel, metric) {
  const socket = client.sockets.at(-1);
  socket.pause();
  let count = 0;
  while ((await server.metric(metric)) === 0) {
    // Bytes that no compression makes small.
    await server.publish(channel, { data: { number: ++count, noise: randomBytes(8_000).toString('base64') } });
  }
  socket.resume();
  return count;
}

async function readNumbers(subscription, count) {
  const numbers = (await subscription.values(count)).map(({ number }) => number);
  assert.deepEqual(numbers, Array.from({ length: count }, (_, index) => index + 1));
}

const SMALL_QUEUES = [...NAMESPACES, '--outbound-bytes-max', '128KiB'];

withSdk('a subscriber that falls behind is told so, and recovers', SMALL_QUEUES, async ({ server, client }) => {
  const one = client();
  await one.connect();
  const gap = await one.subscribe('gap:room');
  await gap.events.next('subscribing');
  const count = await overrun(server, one, 'gap:room', 'myriad_subscription_gaps_total');
  assert.equal((await gap.events.next('subscribing')).code, 2500);
  await readNumbers(gap, count);
  assert.equal(one.sockets.length, 1);
});

const PERSONAL_GAPS = [
  ...withConfig(
    '[client]',
    'user_id_http_header = "X-User"',
    'recovery_max_publication_limit = 1000',
    '[client.subscribe_to_user_personal_channel]',
    'enabled = true',
    '[channel.without_namespace]',
    'slow_consumer = "gap_then_recover"',
    ...HISTORY,
  ),
  '--outbound-bytes-max',
  '128KiB',
];

withSdk('a client that falls behind in its own channel connects again, and recovers', PERSONAL_GAPS, async (given) => {
  const { server, client } = given;
  const one = client({ user: '42' });
  await one.connect();
  await one.events.next('connecting');
  await one.events.next('subscribed');
  const ended = 'myriad_closes_total{reason="insufficient_state"}';
  const count = await overrun(server, one, '#42', ended);
  assert.equal((await one.events.next('connecting')).code, 3010);
  const { wasRecovering, recovered, streamPosition } = await one.events.next('subscribed');
  assert.equal(wasRecovering, true);
  await server.publish('#42', { data: { number: count + 1 } });
  const numbers = [];
  while (numbers.at(-1) !== count + 1) {
    numbers.push(one.encoding.decode((await one.events.next('publication')).data).number);
  }
  const missed = recovered ? 0 : streamPosition.offset - numbers.length + 1;
  assert.deepEqual(numbers.slice(0, -1), Array.from({ length: count - missed }, (_, index) => index + 1));
});

const LITTLE_MEMORY = ['--buffered-bytes-max', '1MiB', '--outbound-bytes-max', '1MiB'];

withSdk('a server without memory lets its clients come back', [...NAMESPACES, ...LITTLE_MEMORY], async ({ server, client }) => {
  const clients = [client(), client()];
  for (const one of clients) {
    await one.connect();
    await one.events.next('connecting');
    await one.subscribe('room');
    one.sockets.at(-1).pause();
  }
  while ((await server.metric('myriad_closes_total{reason="overloaded"}')) === 0) {
    await server.publish('room', { data: randomBytes(8_000).toString('base64') });
  }
  for (const one of clients) one.sockets.at(-1).resume();
  // A close code of WebSocket itself, which the SDK does not show.
  const { code, reason } = await Promise.race(clients.map((one) => one.events.next('connecting')));
  assert.deepEqual([code, reason], [1, 'transport closed']);
});

withSdk('a client that falls behind is closed, and told whether it has missed something', SMALL_QUEUES, async (given) => {
  const { server, client } = given;
  const one = client();
  await one.connect();
  await one.events.next('connecting');
  const room = await one.subscribe('room');
  const count = await overrun(server, one, 'room', 'myriad_closes_total{reason="slow_consumer"}');
  assert.equal((await one.events.next('connecting')).code, 3008);
  const { wasRecovering, recovered, streamPosition } = await room.events.next('subscribed');
  assert.equal(wasRecovering, true);
  await server.publish('room', { data: { number: count + 1 } });
  const numbers = [];
  while (numbers.at(-1) !== count + 1) numbers.push((await room.value()).number);
  // What it missed fits its queue, or does not: both are right.
  const missed = recovered ? 0 : streamPosition.offset - numbers.length + 1;
  const before = numbers.slice(0, -1);
  assert.deepEqual(before, Array.from({ length: count - missed }, (_, index) => index + 1));
});
