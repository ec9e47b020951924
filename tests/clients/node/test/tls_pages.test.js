// A page that came over TLS, in headless Chromium: everything that it opens comes over TLS too.

import assert from 'node:assert/strict';
import { authority, publicKeyHash, using } from '../certificates.js';
import { launch } from '../browser.js';
import { onBothDrivers } from '../server.js';

const own = authority().issue();

onBothDrivers('a page over TLS publishes, and hears by WebSocket and events', using(own), async (server) => {
  await server.publish('room', { data: 0 });
  // Chromium keeps its own list of authorities, so it is told whose certificate it may take. Others it refuses.
  const browser = await launch(`--ignore-certificate-errors-spki-list=${publicKeyHash(own)}`);
  try {
    const page = await browser.newPage();
    const response = await page.goto(server.url('http', '/'));
    assert.equal(response.status(), 200);
    assert.equal((await response.securityDetails()).protocol, 'TLS 1.3');
    const heard = await page.evaluate(async () => {
      const socket = new WebSocket(`wss://${location.host}/raw?channel=room`);
      await new Promise((resolve, reject) => Object.assign(socket, { onopen: resolve, onerror: reject }));
      const messages = [];
      const all = (count) => new Promise((resolve) => {
        socket.onmessage = ({ data }) => messages.push(data) === count && resolve(messages);
      });
      const events = new EventSource('/v1/stream/room?offset=-1&live=sse');
      const items = [];
      const streamed = new Promise((resolve) => events.addEventListener('data', ({ data }) => {
        items.push(...JSON.parse(data));
        if (items.length === 4) resolve(items);
      }));
      const pushed = all(3);
      for (const data of [1, 2, 'x'.repeat(100_000)]) {
        const answer = await fetch('/api/publish', { method: 'POST', body: JSON.stringify({ channel: 'room', data }) });
        if (!answer.ok) throw new Error(`${answer.status}`);
      }
      const ended = new Promise((resolve) => { socket.onclose = ({ code, wasClean }) => resolve([code, wasClean]); });
      const result = { pushed: await pushed, streamed: await streamed };
      events.close();
      socket.close(4000, 'done');
      return { ...result, ended: await ended };
    });
    assert.deepEqual(heard.pushed, ['1', '2', 'x'.repeat(100_000)]);
    assert.deepEqual(heard.streamed, [0, 1, 2, 'x'.repeat(100_000)]);
    assert.deepEqual(heard.ended, [4000, true]);
  } finally {
    await browser.close();
  }
});

onBothDrivers('a page does not take the certificate of another key', using(own), async (server) => {
  const browser = await launch(`--ignore-certificate-errors-spki-list=${publicKeyHash(authority().issue())}`);
  try {
    const page = await browser.newPage();
    await assert.rejects(page.goto(server.url('http', '/')), /ERR_CERT_AUTHORITY_INVALID/);
  } finally {
    await browser.close();
  }
});
