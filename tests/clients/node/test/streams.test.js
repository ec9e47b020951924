// Channels as streams: npm's client of the Durable Streams protocol beside the SDK.

import assert from 'node:assert/strict';
import { DurableStream, FetchError, IdempotentProducer, StaleEpochError, stream } from '@durable-streams/client';
import { withConfig, withSdk } from '../sdk.js';
import { onBothDrivers, Server } from '../server.js';
import { addressOf, catchUp, LIVE, Reader } from '../streams.js';
import { hmacToken, inSeconds } from '../tokens.js';
import { Wire } from '../wire.js';

const JSON_STREAM = 'application/json';
const numbers = (count, from = 0) => Array.from({ length: count }, (_, index) => from + index);
const status = (expected) => (error) => error instanceof FetchError && error.status === expected;

withSdk('subscribers and readers of a stream see one order', [], async ({ server, client }) => {
  const url = addressOf(server, 'teams/a room');
  const handle = await DurableStream.create({ url, contentType: JSON_STREAM });
  const one = client();
  await one.connect();
  const room = await one.subscribe('teams/a room');
  const readers = await Promise.all(LIVE.map((live) => Reader.open(url, live)));
  const producer = new IdempotentProducer(handle, 'test', { maxBatchBytes: 60, onError: assert.fail });
  const writers = {
    // Appends that overlap leave as one array.
    appended: (number) => handle.append(JSON.stringify({ appended: number })),
    produced: async (number) => producer.append(JSON.stringify({ produced: number })),
    api: (number) => server.publish('teams/a room', { data: { api: number } }),
    socket: (number) => room.publish({ socket: number }),
  };
  const write = (name, batch) => Promise.all(numbers(8, batch * 8).map(writers[name]));
  for (let batch = 0; batch < 3; batch++) {
    await Promise.all(Object.keys(writers).map((name) => write(name, batch)));
    await producer.flush();
  }
  // An array is one publication: a client that means several sends them one by one.
  await handle.append('["the","end"]');

  const order = await room.values(97);
  for (const [index, reader] of readers.entries()) {
    assert.deepEqual(await reader.items.take(97), order, `live: ${LIVE[index]}`);
    reader.end();
  }
  assert.deepEqual((await catchUp(url)).items, order);
  assert.deepEqual(order.at(-1), ['the', 'end']);
  for (const name of ['socket', 'produced']) {
    assert.deepEqual(order.filter((value) => name in value).map((value) => value[name]), numbers(24));
  }
  for (const name of ['appended', 'api']) {
    assert.deepEqual(order.filter((value) => name in value).map((value) => value[name]).sort((a, b) => a - b), numbers(24));
  }
});

onBothDrivers('a stream that was only published to is read', ['--poll-timeout', '200ms'], async (server) => {
  await server.publish('room', { data: 1 });
  const url = addressOf(server, 'room');
  const handle = await DurableStream.connect({ url });
  assert.equal(handle.contentType, JSON_STREAM);
  const { items, offset } = await catchUp(url);
  assert.deepEqual(items, [1]);
  // Time-outs of polls come between.
  const readers = await Promise.all(LIVE.map((live) => Reader.open(url, live, { offset })));
  while ((await server.metric('myriad_poll_timeouts_total')) < 3);
  await server.publish('room', { data: 2 });
  await server.publish('room', { data: 3 });
  for (const reader of readers) {
    assert.deepEqual(await reader.items.take(2), [2, 3]);
    reader.end();
  }
});

onBothDrivers('readers go on where they were', ['--events-timeout', '1100ms'], async (server) => {
  const url = addressOf(server, 'room');
  const handle = await DurableStream.create({ url, contentType: JSON_STREAM, body: '[0]' });
  for (const live of LIVE) {
    const saved = (await catchUp(url)).offset;
    const first = await Reader.open(url, live, { offset: saved });
    await handle.append('1');
    assert.equal(await first.items.next(), 1);
    const { offset } = first;
    first.end();
    await handle.append('2');
    const second = await Reader.open(url, live, { offset });
    assert.equal(await second.items.next(), 2, `live: ${live}`);
    // A response that ends is followed by the next one.
    const opened = await server.metric('myriad_event_streams_opened_total');
    if (live === 'sse') while ((await server.metric('myriad_event_streams_opened_total')) === opened);
    await handle.append('3');
    assert.equal(await second.items.next(), 3, `live: ${live}`);
    second.end();
  }
});

onBothDrivers('a held request that breaks off is sent again', [], async (server) => {
  const wire = await Wire.to(server.address);
  try {
    const handle = await DurableStream.create({ url: addressOf(server, 'room'), contentType: JSON_STREAM });
    const reader = await Reader.open(addressOf(wire, 'room'), 'long-poll', { backoffOptions: { initialDelay: 1, maxDelay: 20, multiplier: 1.3 } });
    await handle.append('1');
    assert.equal(await reader.items.next(), 1);
    while ((await server.metric('myriad_parked_polls')) !== 1);
    wire.break();
    await handle.append('2');
    wire.mend();
    assert.equal(await reader.items.next(), 2);
    reader.end();
  } finally {
    wire.end();
  }
});

const SHORT = withConfig('[channel.without_namespace]', 'history_size = 10', 'history_ttl = "1h"');

onBothDrivers('a reader that missed something is told, and where it can go on', SHORT, async (server) => {
  const url = addressOf(server, 'room');
  const handle = await DurableStream.create({ url, contentType: JSON_STREAM, body: '["old"]' });
  const { offset } = await catchUp(url);
  for (const number of numbers(30)) await handle.append(String(number));
  for (const live of [false, ...LIVE]) {
    const refused = await stream({ url, offset, live }).catch((error) => error);
    assert.ok(status(410)(refused), `live: ${live}: ${refused}`);
    assert.match(refused.json.error.message, /no longer kept/);
    const earliest = refused.headers['stream-next-offset'];
    const response = await stream({ url, live, offset: earliest });
    assert.deepEqual(await response.json(), numbers(10, 20), `live: ${live}`);
  }
  assert.deepEqual((await catchUp(url, { offset: '-1' })).items, numbers(10, 20));
});

onBothDrivers('a server that was started again does not pass for the one before', [], async (server) => {
  const wire = await Wire.to(server.address);
  const backoffOptions = { initialDelay: 1, maxDelay: 20, multiplier: 1.3 };
  let second;
  try {
    await server.publish('room', { data: 'before' });
    const reader = await Reader.open(addressOf(wire, 'room'), 'long-poll', { backoffOptions });
    assert.equal(await reader.items.next(), 'before');
    wire.break();
    second = await Server.start(server.driver);
    await second.publish('room', { data: 'after' });
    wire.target = second.address;
    wire.mend();
    assert.ok(status(410)(await reader.closed));
    assert.equal(reader.items.length, 0);
    const next = await Reader.open(addressOf(wire, 'room'), 'sse');
    assert.equal(await next.items.next(), 'after');
    next.end();
  } finally {
    wire.end();
    await second?.stop();
  }
});

withSdk('the end of a stream', [], async ({ server, client }) => {
  const url = addressOf(server, 'room');
  const handle = await DurableStream.create({ url, contentType: JSON_STREAM });
  const one = client();
  await one.connect();
  const room = await one.subscribe('room');
  const readers = await Promise.all(LIVE.map((live) => Reader.open(url, live)));
  await handle.close({ body: '"last"' });
  assert.equal(await room.value(), 'last');
  for (const reader of readers) {
    assert.equal(await reader.items.next(), 'last');
    assert.equal(await reader.closed, undefined);
    assert.equal(reader.response.streamClosed, true);
  }
  assert.equal((await handle.head()).streamClosed, true);
  await assert.rejects(handle.append('1'), status(409));
  await assert.rejects(room.publish('more'), { code: 108 });
  // Closing is done once, however often it is asked for.
  await handle.close();
  assert.deepEqual((await catchUp(url)).items, ['last']);
});

onBothDrivers('readers of a stream that is deleted', [], async (server) => {
  const url = addressOf(server, 'room');
  const handle = await DurableStream.create({ url, contentType: JSON_STREAM, body: '[1]' });
  await assert.rejects(DurableStream.create({ url, contentType: 'text/plain' }), status(409));
  const { offset } = await catchUp(url);
  const readers = await Promise.all(LIVE.map((live) => Reader.open(url, live)));
  await handle.append('"never read from there"');
  for (const reader of readers) assert.equal((await reader.items.take(2))[0], 1);
  while ((await server.metric('myriad_parked_polls')) !== 2 || (await server.metric('myriad_event_streams')) !== 1);
  await handle.delete();
  for (const reader of readers) assert.ok(status(404)(await reader.closed));
  await DurableStream.create({ url, contentType: JSON_STREAM, body: '[2]' });
  await assert.rejects(catchUp(url, { offset }), status(410));
  assert.deepEqual((await catchUp(url)).items, [2]);
});

onBothDrivers('a producer appends once, and is replaced by the next of its name', [], async (server) => {
  const url = addressOf(server, 'room');
  const handle = await DurableStream.create({ url, contentType: JSON_STREAM });
  const failures = [];
  const make = (options) =>
    new IdempotentProducer(handle, 'worker', { maxBatchBytes: 10, onError: (error) => failures.push(error), ...options });
  const first = make({});
  for (const number of numbers(50)) first.append(String(number));
  await first.flush();
  // An epoch begins with its first append, so that those behind it have to wait.
  const second = make({ epoch: 1, maxInFlight: 1 });
  for (const number of numbers(25, 50)) second.append(String(number));
  await second.flush();
  // One that does not know of the others is told which epoch is taken, and claims the next.
  const third = make({ autoClaim: true });
  for (const number of numbers(25, 75)) third.append(String(number));
  await third.flush();
  assert.deepEqual(failures, []);
  for (const late of [first, second]) {
    late.append('"too late"');
    await late.flush();
    assert.ok(failures.shift() instanceof StaleEpochError);
  }
  await third.close('"last"');
  assert.deepEqual((await catchUp(url)).items, [...numbers(99, 1), 'last']);
});

onBothDrivers('bytes and text', [], async (server) => {
  const bytes = Uint8Array.from({ length: 256 }, (_, index) => index);
  const binary = await DurableStream.create({ url: addressOf(server, 'bytes'), contentType: 'application/octet-stream' });
  const raw = await server.connect('/raw?channel=bytes');
  const live = await Promise.all(LIVE.map((mode) => stream({ url: binary.url, offset: '-1', live: mode })));
  await binary.append(bytes);
  assert.deepEqual(new Uint8Array(await raw.next()), bytes);
  for (const response of live) {
    const reader = response.bodyStream().getReader();
    let read = await reader.read();
    while (read.value.length === 0) read = await reader.read();
    assert.deepEqual(new Uint8Array(read.value), bytes, `live: ${response.live}`);
    response.cancel();
  }
  const text = await DurableStream.create({ url: addressOf(server, 'text'), contentType: 'text/plain' });
  await text.append('käse\n');
  await text.append('\n\nund brot');
  for (const mode of [false, ...LIVE]) {
    assert.equal(await (await stream({ url: text.url, live: mode })).text(), 'käse\n\n\nund brot', `live: ${mode}`);
  }
});

const SECRET = 'a secret of the tests, long enough to be one';
const KEY = 'a-key-of-the-tests';
const REAL = [
  '--api-key', KEY,
  ...withConfig(
    '[client.token]',
    `hmac_secret_key = "${SECRET}"`,
    '[[channel.namespaces]]',
    'name = "chat"',
    'history_size = 100',
    'history_ttl = "1h"',
    'allow_subscribe_for_client = true',
    'allow_publish_for_client = true',
    '[[channel.namespaces]]',
    'name = "news"',
    'history_size = 100',
    'history_ttl = "1h"',
    'allow_subscribe_for_client = true',
  ),
];

onBothDrivers('who may', REAL, async (server) => {
  const bearer = (claims, secret = SECRET) => ({ Authorization: () => `Bearer ${hmacToken(secret, claims)}` });
  const ann = bearer({ sub: 'ann' });
  const strangers = [{}, bearer({ sub: 'ann' }, 'another secret'), bearer({ sub: 'ann', exp: inSeconds(-60) })];
  const chat = addressOf(server, 'chat:room');
  const news = addressOf(server, 'news:today');
  for (const headers of strangers) {
    await assert.rejects(DurableStream.create({ url: chat, contentType: JSON_STREAM, headers }), status(401));
    for (const live of [false, ...LIVE]) await assert.rejects(stream({ url: chat, live, headers }), status(401));
  }
  const room = await DurableStream.create({ url: chat, contentType: JSON_STREAM, headers: ann });
  await assert.rejects(DurableStream.create({ url: news, contentType: JSON_STREAM, headers: ann }), status(403));
  const key = { 'X-API-Key': KEY };
  const paper = await DurableStream.create({ url: news, contentType: JSON_STREAM, headers: key });
  for (const handle of [room, paper]) {
    const readers = await Promise.all(LIVE.map((live) => Reader.open(handle.url, live, { headers: ann })));
    await handle.append('1');
    await handle.append('2');
    for (const reader of readers) {
      assert.deepEqual(await reader.items.take(2), [1, 2]);
      reader.end();
    }
  }
  assert.deepEqual((await catchUp(news, { headers: key })).items, [1, 2]);
});
