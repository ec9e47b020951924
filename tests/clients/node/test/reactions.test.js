// What the SDK does after each close code that docs/protocol.md lists. Our server does not send all of them yet, so a small server of
// this file ends the connections.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { once } from 'node:events';
import { test } from 'node:test';
import { Centrifuge } from 'centrifuge';
import WebSocket, { WebSocketServer } from 'ws';

const page = readFileSync(new URL('../../../../docs/protocol.md', import.meta.url), 'utf8');

// Numbers, names and what the page says that the SDK does.
const rows = [...page.matchAll(/^\| (3\d{3}) \| ([a-z ]+) \| (reconnects|stays away) \|/gm)].map(
  ([, code, name, reaction]) => ({ code: Number(code), name, reaction }),
);

test('the SDK does after each close code what the page of the protocol says', async () => {
  assert.ok(rows.length >= 22, `${rows.length} codes`);
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  await once(server, 'listening');
  for (const { code, name, reaction } of rows) {
    let connections = 0;
    server.removeAllListeners('connection');
    server.on('connection', (socket) => {
      connections++;
      const isFirst = connections === 1;
      socket.on('message', (message) => {
        const { id, connect } = JSON.parse(message.toString());
        if (!connect) return;
        socket.send(JSON.stringify({ id, connect: { client: 'c', version: 'v' } }));
        if (isFirst) socket.close(code, name);
      });
    });
    const client = new Centrifuge(`ws://127.0.0.1:${server.address().port}`, {
      websocket: WebSocket,
      minReconnectDelay: 1,
      maxReconnectDelay: 5,
    });
    const told = new Promise((resolve) => {
      client.on('disconnected', (context) => resolve(['stays away', context.code, context.reason]));
      client.on('connecting', (context) => context.code !== 0 && resolve(['reconnects', context.code, context.reason]));
    });
    client.connect();
    assert.deepEqual(await told, [reaction, code, name]);
    if (reaction === 'reconnects') {
      await client.ready();
      assert.equal(connections, 2);
    }
    client.disconnect();
  }
  server.close();
});
