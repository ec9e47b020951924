// How connections end, from either side.

import assert from 'node:assert/strict';
import { onBothDrivers, Client } from '../server.js';

onBothDrivers('a client that closes gets its code back', [], async (server) => {
  for (const [code, reason] of [[1000, 'done'], [3000, ''], [4999, 'r'.repeat(100)]]) {
    const client = await server.connect('/raw?channel=c');
    const closed = await client.close(code, reason);
    assert.equal(closed.code, code);
  }
  const client = await server.connect('/raw?channel=c');
  assert.equal((await client.close()).code, 1005);
});

onBothDrivers('a message over the limit ends with 1009', ['--message-bytes-max', '1KiB'], async (server) => {
  const client = await server.connect('/echo');
  client.socket.send('x'.repeat(1024));
  assert.equal((await client.next()).length, 1024);
  client.socket.send('x'.repeat(1025));
  const { code, reason } = await client.closed;
  assert.equal(code, 1009);
  assert.notEqual(reason, '');
  assert.equal(await server.metric('myriad_closes_total{reason="too_big"}'), 1);
});

onBothDrivers('fragments over the limit together end with 1009', ['--message-bytes-max', '1KiB'], async (server) => {
  const client = await server.connect('/echo');
  client.socket.send('x'.repeat(1000), { fin: false });
  client.socket.send('x'.repeat(1000), { fin: true });
  assert.equal((await client.closed).code, 1009);
});

onBothDrivers('broken frames end with their code', [], async (server) => {
  const mask = [1, 2, 3, 4];
  const masked = (bytes) => bytes.map((byte, index) => byte ^ mask[index % 4]);
  for (const [what, bytes, expected] of [
    ['an unmasked frame', [0x81, 0x01, 0x61], 1002],
    ['an unknown opcode', [0x83, 0x80, ...mask], 1002],
    ['a reserved bit', [0xc1, 0x81, ...mask, ...masked([0x61])], 1002],
    ['a continuation of nothing', [0x80, 0x80, ...mask], 1002],
    ['a fragmented ping', [0x09, 0x80, ...mask], 1002],
    ['text that is not UTF-8', [0x81, 0x82, ...mask, ...masked([0xc3, 0x28])], 1007],
    ['a close code that may not be sent', [0x88, 0x82, ...mask, ...masked([0x03, 0xed])], 1002],
  ]) {
    // Without compression, which would give a reserved bit a meaning.
    const client = await server.connect('/echo', { perMessageDeflate: false });
    // Past the client's own checks, straight to its socket.
    client.socket._socket.write(Buffer.from(bytes));
    assert.equal((await client.closed).code, expected, what);
  }
});

onBothDrivers('a terminated client is noticed', [], async (server) => {
  const client = await server.connect('/raw?channel=c');
  client.socket.terminate();
  const other = await server.connect('/raw?channel=c');
  await server.publish('c', { data: 'on' });
  assert.equal(await other.next(), 'on');
});

onBothDrivers('refused upgrades carry their status and a sentence', [], async (server) => {
  const refused = (path, options) =>
    new Promise((resolve, reject) => {
      const client = new Client(`ws://${server.address}${path}`, options);
      client.socket.on('open', () => reject(new Error(`${path} was not refused`)));
      client.socket.on('unexpected-response', async (_request, response) => {
        let body = '';
        for await (const piece of response) body += piece;
        resolve({ status: response.statusCode, headers: response.headers, body });
      });
    });
  const unnamed = await refused('/raw');
  assert.equal(unnamed.status, 400);
  assert.match(unnamed.body, /channel/i);
  assert.equal((await refused('/raw?channel=')).status, 400);
  const old = await refused('/raw?channel=c', { protocolVersion: 8 });
  assert.equal(old.status, 426);
  assert.equal(old.headers['sec-websocket-version'], '13');
});

onBothDrivers('a drain says 1001 to everybody and exits with 0', ['--drain', '300ms'], async (server) => {
  const clients = await Promise.all(Array.from({ length: 50 }, () => server.connect('/raw?channel=c')));
  const code = server.stop();
  for (const client of clients) {
    const closed = await client.closed;
    assert.equal(closed.code, 1001);
    assert.match(closed.reason, /reconnect/);
  }
  assert.equal(await code, 0, server.log);
});
