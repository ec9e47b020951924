// Frames of every size and shape, there and back.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { onBothDrivers } from '../server.js';

// Around every change of the length's encoding, and of buffers.
const LENGTHS = [0, 1, 125, 126, 127, 4095, 4096, 4097, 65_535, 65_536, 1 << 19];

onBothDrivers('messages of every length come back', ['--message-bytes-max', '1MiB'], async (server) => {
  const client = await server.connect('/echo');
  for (const length of LENGTHS) {
    const bytes = randomBytes(length);
    client.socket.send(bytes);
    assert.ok(bytes.equals(await client.next()), `${length} bytes`);
    const text = 'é'.repeat(length / 2);
    client.socket.send(text);
    assert.equal(await client.next(), text);
  }
});

onBothDrivers('many messages at once keep their order', [], async (server) => {
  const client = await server.connect('/echo');
  for (let number = 0; number < 2000; number++) client.socket.send(`message ${number}`);
  for (let number = 0; number < 2000; number++) assert.equal(await client.next(), `message ${number}`);
});

onBothDrivers('fragments are one message, with a ping between them', [], async (server) => {
  const client = await server.connect('/echo');
  const pong = once(client.socket, 'pong');
  client.socket.send('one, ', { fin: false });
  client.socket.send('two, ', { fin: false });
  client.socket.ping('between');
  client.socket.send('three', { fin: true });
  assert.equal((await pong)[0].toString(), 'between');
  assert.equal(await client.next(), 'one, two, three');
});
