// Pings in both directions, and who does not answer them.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { onBothDrivers } from '../server.js';

onBothDrivers('a ping is answered with its payload', [], async (server) => {
  const client = await server.connect('/raw?channel=c');
  for (const payload of ['', 'x', 'p'.repeat(125)]) {
    client.socket.ping(payload);
    assert.equal((await once(client.socket, 'pong'))[0].toString(), payload);
  }
});

// Time enough for an answer where the machine is slow. The second ping comes when the answer to the first is due.
onBothDrivers('the server pings, and keeps who answers', ['--ping-interval', '2s', '--pong-timeout', '2s'], async (server) => {
  const client = await server.connect('/raw?channel=c');
  while (client.pings < 2) await once(client.socket, 'ping');
  await server.publish('c', { data: 'kept' });
  assert.equal(await client.next(), 'kept');
  assert.ok((await server.metric('myriad_pings_total')) >= 2);
});

onBothDrivers('who does not answer pings is closed', ['--ping-interval', '100ms', '--pong-timeout', '100ms'], async (server) => {
  const client = await server.connect('/raw?channel=c', { autoPong: false });
  const { code, reason } = await client.closed;
  assert.equal(code, 3012);
  assert.match(reason, /pong/);
  assert.equal(await server.metric('myriad_closes_total{reason="pong_timeout"}'), 1);
});

onBothDrivers('who says nothing for long is closed', ['--ping-interval', '0', '--idle-timeout', '100ms'], async (server) => {
  const client = await server.connect('/raw?channel=c');
  assert.equal((await client.closed).code, 1001);
  assert.equal(await server.metric('myriad_closes_total{reason="idle_timeout"}'), 1);
});
