// Web pages of other origins that read streams, in headless Chromium.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { launch } from '../browser.js';
import { hmacToken } from '../tokens.js';
import { withConfig } from '../sdk.js';
import { onBothDrivers, Server } from '../server.js';
import { addressOf } from '../streams.js';
import { Wire } from '../wire.js';

const module = readFileSync(new URL('../node_modules/@durable-streams/client/dist/index.js', import.meta.url));

// Serves an empty page and npm's client of streams, at any name that leads here.
async function startPages() {
  const pages = createServer((request, response) => {
    const isModule = request.url === '/client.js';
    response.writeHead(200, { 'Content-Type': isModule ? 'text/javascript' : 'text/html' });
    response.end(isModule ? module : '<!doctype html><title>A page</title>');
  });
  pages.listen(0, '127.0.0.1');
  await once(pages, 'listening');
  return pages;
}

// What an EventSource of a page tells, as it comes.
function listen([url, names]) {
  globalThis.seen = [];
  const source = new EventSource(url);
  for (const name of names) source.addEventListener(name, ({ data }) => seen.push(...[JSON.parse(data)].flat()));
  source.addEventListener('error', () => seen.push(`error ${source.readyState}`));
}

// Waits until the page has seen this, and no more.
async function sees(page, expected) {
  await page.waitForFunction((count) => globalThis.seen.length >= count, expected.length);
  assert.deepEqual(await page.evaluate(() => globalThis.seen), expected);
}

// Sends commands to a stream of events, and reads it as far as the reply to the command `id`.
async function readUntilReply([url, commands, id]) {
  const response = await fetch(url, { method: 'POST', body: commands });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  while (!text.includes(`"id":${id}`)) {
    const { value, done } = await reader.read();
    if (done) throw new Error(`the response ended before the reply to ${id}: ${text}`);
    text += value;
  }
  await reader.cancel();
  return text;
}

// Runs `body` with an open page, and a way to open another one.
async function withPage(body) {
  const pages = await startPages();
  const browser = await launch();
  try {
    const page = await (await browser.newContext()).newPage();
    const open = async (host) => {
      await page.goto(`http://${host}:${pages.address().port}/`);
      return page;
    };
    await body(await open('app.example'), open);
  } finally {
    await browser.close();
    pages.closeAllConnections();
    pages.close();
  }
}

const APPS = ['--allowed-origins', 'http://app.example:*'];

onBothDrivers('an EventSource of a page goes on after each end', [...APPS, '--events-timeout', '500ms'], async (server) => {
  await withPage(async (page) => {
    const wire = await Wire.to(server.address);
    let second;
    try {
      await server.publish('room', { data: 1 });
      await page.evaluate(listen, [`${addressOf(wire, 'room')}?offset=-1&live=sse`, ['data']]);
      // The response ends, and the browser comes back with what it saw last.
      await sees(page, [1, 'error 0']);
      await server.publish('room', { data: 2 });
      await server.publish('room', { data: 3 });
      await page.waitForFunction(() => globalThis.seen.includes(3));
      assert.deepEqual((await page.evaluate(() => globalThis.seen)).filter(Number), [1, 2, 3]);
      // So it does when the server goes, until the next one says that it has another history.
      wire.break();
      second = await Server.start(server.driver, ...APPS);
      await second.publish('room', { data: 4 });
      wire.target = second.address;
      wire.mend();
      await page.waitForFunction(() => globalThis.seen.includes('error 2'));
      assert.deepEqual((await page.evaluate(() => globalThis.seen)).filter(Number), [1, 2, 3]);
      await page.evaluate(listen, [`${addressOf(wire, 'room')}?offset=-1&live=sse`, ['data']]);
      await sees(page, [4]);
    } finally {
      wire.end();
      await second?.stop();
    }
  });
});

onBothDrivers('an EventSource of a page without an SDK', APPS, async (server) => {
  await withPage(async (page) => {
    await page.evaluate(listen, [`http://${server.address}/connection/uni_sse`, ['message']]);
    await page.waitForFunction(() => globalThis.seen.length > 0);
    const [{ connect }] = await page.evaluate(() => globalThis.seen);
    const response = await fetch(`http://${server.address}/api/subscribe`, {
      method: 'POST',
      body: JSON.stringify({ user: '', client: connect.client, channel: 'room' }),
    });
    assert.equal(response.status, 200);
    await server.publish('room', { data: 'käse\n' });
    await page.waitForFunction(() => globalThis.seen.length > 2);
    const [, subscribed, publication] = await page.evaluate(() => globalThis.seen);
    assert.equal(subscribed.channel, 'room');
    assert.equal(publication.pub.data, 'käse\n');
  });
});

onBothDrivers('an image in a page of a stranger does not act', APPS, async (server) => {
  const commands = [
    '{"id":1,"connect":{}}',
    '{"id":2,"subscribe":{"channel":"room"}}',
    '{"id":3,"publish":{"channel":"room","data":"evil"}}',
  ].join('\n');
  const stream = `http://${server.address}/connection/sse`;
  await withPage(async (page, open) => {
    await open('evil.example');
    const show = (url) =>
      new Promise((done) => {
        const image = new Image();
        image.onload = image.onerror = done;
        image.src = url;
      });
    await page.evaluate(show, `${stream}?cf_connect=${encodeURIComponent(commands)}`);
    assert.equal(await server.metric('myriad_upgrades_refused_total{reason="method"}'), 1);
    const history = async () => (await fetch(`http://${server.address}/v1/stream/room?offset=-1`)).text();
    assert.doesNotMatch(await history(), /evil/);
    // The page may not send them otherwise, either: its Origin says whose it is.
    const send = ([url, body]) => fetch(url, { method: 'POST', mode: 'no-cors', body }).then(() => {});
    await page.evaluate(send, [stream, commands]);
    assert.equal(await server.metric('myriad_upgrades_refused_total{reason="origin"}'), 1);
    assert.doesNotMatch(await history(), /evil/);
    // A page that is listed may. The head of the response comes before the commands are carried out, so the page reads on.
    await open('app.example');
    const replies = await page.evaluate(readUntilReply, [stream, commands, 3]);
    assert.match(replies, /"publish":\{\}/);
    assert.match(await history(), /evil/);
  });
});

onBothDrivers('a page whose name resolves to a development server', APPS, async (server) => {
  const port = server.address.split(':').pop();
  await withPage(async (page) => {
    const answer = await page.goto(`http://evil.example:${port}/`);
    assert.equal(answer.status(), 403);
    assert.match(await answer.text(), /127\.0\.0\.1/);
    const publish = () =>
      fetch('/api/publish', { method: 'POST', body: '{"channel":"room","data":"evil"}' }).then(({ status }) => status);
    assert.equal(await page.evaluate(publish), 403);
    await page.goto(`http://127.0.0.1:${port}/`);
    assert.equal(await page.evaluate(publish), 200);
  });
});

onBothDrivers('an EventSource with a token that is not valid stops', [...APPS, ...withConfig('[uni_sse]', 'enabled = true', '[client.token]', 'hmac_secret_key = "a secret of the tests, long enough to be one"')], async (server) => {
  await withPage(async (page) => {
    const request = encodeURIComponent('{"token":"expired"}');
    await page.evaluate(listen, [`http://${server.address}/connection/uni_sse?cf_connect=${request}`, ['message']]);
    await sees(page, ['error 2']);
  });
});

const SECRET = 'a secret of the tests, long enough to be one';
const REAL = [
  ...APPS,
  '--api-key', 'a-key-of-the-tests',
  ...withConfig(
    '[client.token]',
    `hmac_secret_key = "${SECRET}"`,
    '[channel.without_namespace]',
    'history_size = 2',
    'history_ttl = "1h"',
    'allow_subscribe_for_client = true',
    'allow_publish_for_client = true',
    'allow_stream_end_for_client = true',
  ),
];

onBothDrivers('a page reads and writes by fetch, and sees all headers', REAL, async (server) => {
  const token = hmacToken(SECRET, { sub: 'ann' });
  const run = async ([url, token]) => {
    const headers = { Authorization: `Bearer ${token}` };
    const ask = async (query = '', init = {}) => {
      const response = await fetch(url + query, { ...init, headers: { ...headers, ...init.headers } });
      const header = (name) => response.headers.get(name);
      return { status: response.status, text: await response.text(), header, next: header('Stream-Next-Offset') };
    };
    const json = { 'Content-Type': 'application/json' };
    const created = await ask('', { method: 'PUT', headers: json });
    const held = ask(`?offset=${created.next}&live=long-poll`);
    const producer = { 'Producer-Id': 'page', 'Producer-Epoch': '0', 'Producer-Seq': '0' };
    const appended = await ask('', { method: 'POST', headers: { ...json, ...producer }, body: '[1,2]' });
    const polled = await held;
    const known = await ask('', { headers: { 'If-None-Match': (await ask()).header('ETag') } });
    await ask('', { method: 'POST', headers: json, body: '[3,4]' });
    const gone = await ask(`?offset=${created.next}`);
    const again = await ask(`?offset=${gone.next}`);
    const closed = await ask('', { method: 'POST', headers: { 'Stream-Closed': 'true' } });
    const end = await ask(`?offset=${closed.next}&live=long-poll`);
    const described = await ask('', { method: 'HEAD' });
    const deleted = await ask('', { method: 'DELETE' });
    return {
      statuses: [created, appended, polled, known, gone, again, closed, end, described, deleted].map(({ status }) => status),
      location: created.header('Location'),
      texts: [polled.text, again.text],
      isUpToDate: polled.header('Stream-Up-To-Date'),
      cursor: polled.header('Stream-Cursor'),
      durability: gone.header('Stream-Durability'),
      epoch: appended.header('Producer-Epoch'),
      isClosed: [end.header('Stream-Closed'), described.header('Stream-Closed')],
      offsets: [appended.next === polled.next, closed.next === end.next],
    };
  };
  await withPage(async (page, open) => {
    const url = addressOf(server, 'room');
    const seen = await page.evaluate(run, [url, token]);
    assert.match(seen.cursor, /^\d+$/);
    delete seen.cursor;
    assert.deepEqual(seen, {
      statuses: [201, 200, 200, 304, 410, 200, 204, 204, 200, 204],
      location: url,
      texts: ['[1,2]', '[3,4]'],
      isUpToDate: 'true',
      durability: 'memory',
      epoch: '0',
      isClosed: ['true', 'true'],
      offsets: [true, true],
    });
    const other = await open('other.example');
    await assert.rejects(other.evaluate(run, [url, token]), /Failed to fetch/);
    await other.evaluate(listen, [`${url}?offset=-1&live=sse&token=${token}`, ['data']]);
    await sees(other, ['error 2']);
  });
});

onBothDrivers("npm's client of streams in a page", APPS, async (server) => {
  await withPage(async (page) => {
    const items = await page.evaluate(async (base) => {
      const { DurableStream, stream } = await import('/client.js');
      const rooms = [];
      for (const [name, contentType, datum] of [
        ['json', 'application/json', '{"n":1}'],
        ['bytes', 'application/octet-stream', Uint8Array.from([0, 255, 10])],
      ]) {
        const handle = await DurableStream.create({ url: `${base}/${name}`, contentType });
        await handle.append(datum);
        for (const live of ['long-poll', 'sse', true]) {
          const response = await stream({ url: handle.url, offset: '-1', live });
          const body = name === 'json' ? await response.json() : [...(await response.body())];
          rooms.push([name, live, body]);
        }
      }
      return rooms;
    }, `http://${server.address}/v1/stream`);
    assert.deepEqual(items, [
      ['json', 'long-poll', [{ n: 1 }]],
      ['json', 'sse', [{ n: 1 }]],
      ['json', true, [{ n: 1 }]],
      ['bytes', 'long-poll', [0, 255, 10]],
      ['bytes', 'sse', [0, 255, 10]],
      ['bytes', true, [0, 255, 10]],
    ]);
  });
});
