// Publications, from the API to ws.

import assert from 'node:assert/strict';
import { onBothDrivers } from '../server.js';

onBothDrivers('text and binary arrive as they were meant', [], async (server) => {
  const client = await server.connect('/raw?channel=news');
  await server.publish('news', { data: 'käse \u{1f9c0}' });
  await server.publish('news', { data: { n: [1, null] } });
  await server.publish('news', { b64data: Buffer.from([0, 255, 7]).toString('base64') });
  assert.equal(await client.next(), 'käse \u{1f9c0}');
  assert.equal(await client.next(), '{"n":[1,null]}');
  assert.deepEqual(await client.next(), Buffer.from([0, 255, 7]));
});

onBothDrivers('several channels come over one connection, each in its order', [], async (server) => {
  const client = await server.connect('/raw?channel=a&channel=b');
  const other = await server.connect('/raw?channel=b');
  const offsets = [];
  for (let number = 0; number < 20; number++) {
    offsets.push(await server.publish(number % 2 ? 'a' : 'b', { data: number }));
  }
  const numbers = [];
  for (let count = 0; count < 20; count++) numbers.push(Number(await client.next()));
  const ofChannel = (odd) => numbers.filter((number) => number % 2 === odd);
  assert.deepEqual(ofChannel(0), [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]);
  assert.deepEqual(ofChannel(1), [1, 3, 5, 7, 9, 11, 13, 15, 17, 19]);
  for (const expected of ofChannel(0)) assert.equal(await other.next(), String(expected));
});

onBothDrivers('a push reaches every one of five hundred', [], async (server) => {
  const clients = await Promise.all(Array.from({ length: 500 }, () => server.connect('/raw?channel=all')));
  await server.publish('all', { data: 'first' });
  await server.publish('all', { data: 'second' });
  for (const client of clients) {
    assert.equal(await client.next(), 'first');
    assert.equal(await client.next(), 'second');
  }
  assert.equal(await server.metric('myriad_deliveries_total'), 1000);
  for (const client of clients) client.socket.terminate();
});

onBothDrivers('a large publication arrives whole', [], async (server) => {
  const client = await server.connect('/raw?channel=large');
  const data = Array.from({ length: 100_000 }, (_, index) => String(index % 10)).join('');
  await server.publish('large', { data });
  assert.equal(await client.next(), data);
});

onBothDrivers('what a subscriber sends is ignored', [], async (server) => {
  const client = await server.connect('/raw?channel=c');
  client.socket.send('hello?');
  client.socket.send(Buffer.alloc(10_000));
  await server.publish('c', { data: 'still here' });
  assert.equal(await client.next(), 'still here');
});
