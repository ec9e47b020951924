// A stream through npm's EventSource: it comes back by itself, where it was.

import assert from 'node:assert/strict';
import { EventSource } from 'eventsource';
import { Mailbox } from '../mailbox.js';
import { onBothDrivers, Server } from '../server.js';
import { addressOf } from '../streams.js';
import { Wire } from '../wire.js';

// An EventSource, its events, and what it sends and gets below them.
class Source {
  data = new Mailbox();
  errors = new Mailbox();
  requests = new Mailbox();
  comments = new Mailbox();
  retries = new Mailbox();

  constructor(url) {
    this.source = new EventSource(url, { fetch: (...args) => this.#fetch(...args) });
    this.source.addEventListener('data', ({ data }) => {
      for (const item of JSON.parse(data)) this.data.put(item);
    });
    this.source.addEventListener('error', (event) => this.errors.put({ code: event.code, state: this.source.readyState }));
  }

  async #fetch(url, init) {
    this.requests.put({ time: Date.now(), lastEventId: new Headers(init.headers).get('last-event-id') });
    const response = await fetch(url, init);
    // A 204 has no body to watch.
    if (response.status !== 200) return response;
    const [shown, watched] = response.body.tee();
    this.#watch(watched).catch(() => {});
    // It compares the address of its answer with the one that it has asked for.
    const answer = new Response(shown, response);
    Object.defineProperty(answer, 'url', { value: response.url });
    return answer;
  }

  async #watch(body) {
    let rest = '';
    for await (const text of body.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + text).split('\n');
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith(':')) this.comments.put(line);
        if (line.startsWith('retry:')) this.retries.put(Number(line.slice(6)));
      }
    }
  }
}

onBothDrivers('an EventSource comes back where it was', ['--ping-interval', '1s', '--pong-timeout', '500ms'], async (server) => {
  const wire = await Wire.to(server.address);
  await server.publish('room', { data: 'kept' });
  const one = new Source(`${addressOf(wire, 'room')}?offset=-1&live=sse`);
  let second;
  try {
    assert.equal((await one.requests.next()).lastEventId, null);
    assert.equal(await one.data.next(), 'kept');
    await server.publish('room', { data: 'live' });
    assert.equal(await one.data.next(), 'live');
    const retry = await one.retries.next();
    assert.ok(retry >= 1_000 && retry < 3_000, String(retry));
    // It is alive while nothing comes.
    await one.comments.take(2);

    const cutAt = Date.now();
    wire.cut();
    for (const number of [1, 2, 3]) await server.publish('room', { data: number });
    assert.equal((await one.errors.next()).state, EventSource.CONNECTING);
    const back = await one.requests.next();
    assert.ok(back.lastEventId, 'it says where it was');
    assert.ok(back.time - cutAt >= retry - 50, 'it waits for as long as it was told');
    assert.deepEqual(await one.data.take(3), [1, 2, 3]);
    assert.equal(one.data.length, 0);

    // Another server does not know what came last: the EventSource is told and does not ask again.
    wire.break();
    second = await Server.start(server.driver);
    await second.publish('room', { data: 'new' });
    wire.target = second.address;
    wire.mend();
    assert.equal((await one.errors.next()).state, EventSource.CONNECTING);
    assert.deepEqual(await one.errors.next(), { code: 410, state: EventSource.CLOSED });
    assert.equal(one.data.length, 0);
  } finally {
    one.source.close();
    wire.end();
    await second?.stop();
  }
});

onBothDrivers('an EventSource of what does not exist, and of what ends', [], async (server) => {
  const unknown = new Source(`${addressOf(server, 'unknown')}?offset=-1&live=sse`);
  assert.deepEqual(await unknown.errors.next(), { code: 404, state: EventSource.CLOSED });
  await server.publish('room', { data: 1 });
  const one = new Source(`${addressOf(server, 'room')}?offset=-1&live=sse`);
  const ended = new Mailbox();
  one.source.addEventListener('control', ({ data }) => JSON.parse(data).streamClosed && ended.put(true));
  try {
    assert.equal(await one.data.next(), 1);
    const closing = await fetch(addressOf(server, 'room'), { method: 'POST', headers: { 'Stream-Closed': 'true' } });
    assert.equal(closing.status, 204);
    assert.equal(await ended.next(), true);
    // The page need not close it. It comes back once, and is told to stop.
    assert.equal((await one.errors.next()).state, EventSource.CONNECTING);
    assert.deepEqual(await one.errors.next(), { code: 204, state: EventSource.CLOSED });
    assert.equal((await one.requests.take(2))[1].lastEventId !== null, true);
    assert.equal(one.requests.length, 0);
  } finally {
    one.source.close();
  }
});
