// npm's ws over TLS: every cipher, records of every size, and how connections end.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { withTls } from '../certificates.js';
import { onBothDrivers } from '../server.js';

const suite = (maxVersion, ciphers) => ({ minVersion: maxVersion, maxVersion, ciphers });
// Behind its handshake, TLS 1.3 is code of Myriad, with a branch for each cipher; TLS 1.2 is code of rustls.
const SUITES = [
  suite('TLSv1.3', 'TLS_AES_128_GCM_SHA256'),
  suite('TLSv1.3', 'TLS_AES_256_GCM_SHA384'),
  suite('TLSv1.3', 'TLS_CHACHA20_POLY1305_SHA256'),
  suite('TLSv1.2', 'ECDHE-ECDSA-AES128-GCM-SHA256'),
  suite('TLSv1.2', 'ECDHE-ECDSA-AES256-GCM-SHA384'),
  suite('TLSv1.2', 'ECDHE-ECDSA-CHACHA20-POLY1305'),
];
// Around the ends of records, which have 2^14 bytes at most, and of buffers.
const LENGTHS = [0, 1, 125, 126, 16_379, 16_380, 16_384, 16_385, 32_768, 65_535, 65_536, 1 << 20];
const LARGE = withTls('--message-bytes-max', '1MiB', '--outbound-bytes-max', '8MiB');

onBothDrivers('TLS: messages of every length come back with every cipher', LARGE, async (server) => {
  for (const options of SUITES) {
    const client = await server.connect('/echo', { ...options, perMessageDeflate: false });
    const socket = client.socket._socket;
    assert.deepEqual([socket.getProtocol(), socket.getCipher().name], [options.maxVersion, options.ciphers]);
    for (const length of LENGTHS) {
      const bytes = randomBytes(length);
      client.socket.send(bytes);
      assert.ok(bytes.equals(await client.next()), `${length} bytes with ${options.ciphers}`);
    }
    await client.close();
  }
});

onBothDrivers('TLS: a large publication reaches every subscriber whole', LARGE, async (server) => {
  const clients = [];
  for (const options of SUITES) clients.push(await server.connect('/raw?channel=c', options));
  assert.equal(await server.metric('myriad_tls_connections{version="1.3"}'), 3);
  assert.equal(await server.metric('myriad_tls_connections{version="1.2"}'), 3);
  const letters = ['a', 'b', 'c'];
  for (const letter of letters) await server.publish('c', { data: letter.repeat(1_000_000) });
  for (const client of clients) {
    for (const letter of letters) assert.ok((await client.next()) === letter.repeat(1_000_000), letter);
  }
});

onBothDrivers('TLS: many messages at once keep their order', LARGE, async (server) => {
  const client = await server.connect('/echo');
  for (let number = 0; number < 2000; number++) client.socket.send(`message ${number}`);
  for (let number = 0; number < 2000; number++) assert.equal(await client.next(), `message ${number}`);
});

onBothDrivers('TLS: a frame may come in records of one byte', LARGE, async (server) => {
  for (const options of SUITES) {
    const client = await server.connect('/echo', { ...options, perMessageDeflate: false });
    // Masked with zeros, the text stays as it is.
    const frame = Buffer.from([0x81, 0x85, 0, 0, 0, 0, ...Buffer.from('small')]);
    // Node.js makes a record of each write.
    for (const byte of frame) client.socket._socket.write(Buffer.from([byte]));
    assert.equal(await client.next(), 'small');
  }
});

onBothDrivers('TLS: who reads nothing for a while gets all that was published', LARGE, async (server) => {
  for (const options of [SUITES[0], SUITES[3]]) {
    const client = await server.connect('/raw?channel=c', { ...options, perMessageDeflate: false });
    client.socket.pause();
    for (let number = 0; number < 6; number++) await server.publish('c', { data: `${number}`.repeat(1_000_000) });
    // Far more than sockets take: records wait at the server, one of them cut.
    while ((await server.metric('myriad_buffered_bytes')) === 0);
    client.socket.resume();
    for (let number = 0; number < 6; number++) assert.ok((await client.next()) === `${number}`.repeat(1_000_000), `${number}`);
    await client.close();
  }
});

onBothDrivers('TLS: pings go both ways', withTls('--ping-interval', '2s', '--pong-timeout', '2s'), async (server) => {
  const client = await server.connect('/raw?channel=c');
  for (const payload of ['', 'x', 'p'.repeat(125)]) {
    client.socket.ping(payload);
    assert.equal((await once(client.socket, 'pong'))[0].toString(), payload);
  }
  // The second ping comes when the answer to the first is due.
  while (client.pings < 2) await once(client.socket, 'ping');
  await server.publish('c', { data: 'kept' });
  assert.equal(await client.next(), 'kept');
});

const IMPATIENT = withTls('--ping-interval', '100ms', '--pong-timeout', '100ms');

onBothDrivers('TLS: who does not answer pings is closed', IMPATIENT, async (server) => {
  for (const options of [SUITES[0], SUITES[3]]) {
    const client = await server.connect('/raw?channel=c', { ...options, autoPong: false });
    assert.equal((await client.closed).code, 3012);
  }
});

onBothDrivers('TLS: close codes reach the other side', withTls('--message-bytes-max', '1KiB'), async (server) => {
  for (const options of [SUITES[0], SUITES[3]]) {
    for (const [code, reason] of [[1000, 'done'], [3000, ''], [4999, 'r'.repeat(100)]]) {
      const client = await server.connect('/raw?channel=c', options);
      assert.equal((await client.close(code, reason)).code, code);
    }
    const large = await server.connect('/echo', options);
    large.socket.send('x'.repeat(1025));
    const { code, reason } = await large.closed;
    assert.equal(code, 1009);
    assert.notEqual(reason, '');
  }
  const drained = await Promise.all([SUITES[0], SUITES[3]].map((options) => server.connect('/raw?channel=c', options)));
  server.signal();
  for (const client of drained) assert.equal((await client.closed).code, 1001);
  assert.deepEqual(await server.exited, [0, null], server.log);
});

onBothDrivers('TLS: clients that vanish are noticed', withTls(), async (server) => {
  for (const options of SUITES) (await server.connect('/raw?channel=c', options)).socket.terminate();
  while ((await server.metric('myriad_tls_connections{version="1.3"}')) > 0);
  while ((await server.metric('myriad_tls_connections{version="1.2"}')) > 0);
  assert.equal(await server.metric('myriad_buffered_bytes'), 0);
  const other = await server.connect('/raw?channel=c');
  await server.publish('c', { data: 'on' });
  assert.equal(await other.next(), 'on');
});
