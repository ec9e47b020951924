// permessage-deflate (RFC 7692), in both directions and with every window.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { deflateRawSync } from 'node:zlib';
import { onBothDrivers } from '../server.js';

const AGREED = 'permessage-deflate; server_no_context_takeover; client_no_context_takeover';
const records = (count) => JSON.stringify(Array.from({ length: count }, (_, id) => ({ id, name: `item ${id}`, price: id / 4 })));

onBothDrivers('messages of every length come back', ['--message-bytes-max', '1MiB'], async (server) => {
  const client = await server.connect('/echo', { perMessageDeflate: { threshold: 0 } });
  assert.equal(client.extensions, AGREED);
  for (const length of [0, 1, 125, 126, 4096, 65_535, 65_536, 1 << 19]) {
    const bytes = randomBytes(length);
    client.socket.send(bytes);
    assert.ok(bytes.equals(await client.next()), `${length} bytes`);
    const text = 'é'.repeat(length / 2);
    client.socket.send(text);
    assert.equal(await client.next(), text);
  }
  client.socket.send('one, ', { fin: false });
  client.socket.send('two, ', { fin: false });
  client.socket.send('three', { fin: true });
  assert.equal(await client.next(), 'one, two, three');
  assert.ok((await server.metric('myriad_compressed_messages_received_total')) >= 17);
});

onBothDrivers('a publication is compressed once for each window', [], async (server) => {
  const windows = [9, 10, 11, 12, 13, 14, 15];
  const asking = windows.map((bits) => ({ perMessageDeflate: { serverMaxWindowBits: bits } }));
  const options = [...asking, ...asking, { perMessageDeflate: true }, { perMessageDeflate: false }];
  const clients = await Promise.all(options.map((option) => server.connect('/raw?channel=c', option)));
  clients.slice(0, 14).forEach((client, index) => {
    assert.equal(client.extensions, `${AGREED}; server_max_window_bits=${windows[index % 7]}`);
  });
  assert.equal(clients[15].extensions, undefined);
  const text = records(2000);
  assert.ok(text.length > 1 << 16);
  await server.publish('c', { data: text });
  for (const client of clients) assert.equal(await client.next(), text);
  await server.publish('c', { b64data: Buffer.from(text).toString('base64') });
  for (const client of clients) assert.equal((await client.next()).toString(), text);
  assert.equal(await server.metric('myriad_compressed_frames_total'), 2 * windows.length);
  assert.equal(await server.metric('myriad_compressed_upgrades_total'), 15);
  const saved = await server.metric('myriad_compression_saved_bytes_total');
  assert.ok(saved > 2 * 15 * text.length * 0.5, `${saved} bytes saved`);
});

onBothDrivers('a window of 8 bits is declined, and so is compression when it is off', [], async (server) => {
  const client = await server.connect('/echo', { perMessageDeflate: { serverMaxWindowBits: 8 } });
  assert.equal(client.extensions, undefined);
  client.socket.send('a'.repeat(10_000));
  assert.equal(await client.next(), 'a'.repeat(10_000));
});

onBothDrivers('nothing is agreed to when it is off', ['--compression', 'off'], async (server) => {
  const client = await server.connect('/echo', { perMessageDeflate: true });
  assert.equal(client.extensions, undefined);
});

// A frame of the client with RSV1, masked with zeros.
function compressedFrame(payload) {
  const header = Buffer.alloc(8);
  header.writeUInt8(0xc2, 0);
  header.writeUInt8(0x80 | 126, 1);
  header.writeUInt16BE(payload.length, 2);
  return Buffer.concat([header, payload]);
}

onBothDrivers('a bomb is refused with 1009, what is no DEFLATE data with 1007', [], async (server) => {
  const bomb = deflateRawSync(Buffer.alloc(40 << 20), { level: 9 });
  assert.ok(bomb.length < 65_536);
  for (const path of ['/echo', '/raw?channel=c']) {
    for (const [payload, code] of [[bomb, 1009], [Buffer.alloc(200, 0xff), 1007]]) {
      const client = await server.connect(path, { perMessageDeflate: true });
      client.socket._socket.write(compressedFrame(payload));
      assert.equal((await client.closed).code, code);
    }
  }
  assert.equal(await server.metric('myriad_closes_total{reason="invalid_deflate"}'), 2);
  assert.equal(await server.metric('myriad_closes_total{reason="too_big"}'), 2);
});
