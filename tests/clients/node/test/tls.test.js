// What the handshake agrees to with clients of Node.js: versions, tickets, names, certificates; and HTTP behind it.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import https from 'node:https';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { connect } from 'node:tls';
import { Authority, authority, using, withTls } from '../certificates.js';
import { withConfig } from '../sdk.js';
import { onBothDrivers, Server } from '../server.js';

const VERSIONS = ['TLSv1.3', 'TLSv1.2'];

// A connection whose handshake is done.
async function shake(server, options = {}) {
  const [host, port] = server.secure.split(':');
  const socket = connect({ host, port: Number(port), servername: 'localhost', ALPNProtocols: ['http/1.1'], ...server.trust, ...options });
  await once(socket, 'secureConnect');
  return socket;
}

// The first bytes that come back for a request. Rejects if the connection ends before.
async function ask(socket, path = '/healthz') {
  socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
  const [head] = await once(socket, 'data');
  return head.toString();
}

// An answer over https, and the socket that it came by.
async function request(server, path, { body, ...options } = {}) {
  const sent = https.request(server.url('http', path), { ...server.trust, ...options });
  sent.end(body);
  const [response] = await once(sent, 'response');
  return { sent, response, socket: response.socket, status: response.statusCode, text: await text(response) };
}

onBothDrivers('https: one connection serves shards and the control plane', withTls(), async (server) => {
  for (const maxVersion of VERSIONS) {
    const agent = new https.Agent({ keepAlive: true, maxSockets: 1, maxVersion });
    const sockets = new Set();
    for (let number = 0; number < 10; number++) {
      const body = JSON.stringify({ channel: maxVersion, data: number });
      const published = await request(server, '/api/publish', { method: 'POST', body, agent });
      assert.equal(JSON.parse(published.text).result.offset, number + 1);
      const read = await request(server, `/v1/stream/${maxVersion}?offset=-1`, { agent });
      assert.equal(JSON.parse(read.text).length, number + 1);
      const missing = await request(server, '/nothing', { agent });
      assert.deepEqual([published.status, read.status, missing.status], [200, 200, 404]);
      for (const { socket } of [published, read, missing]) sockets.add(socket);
    }
    assert.equal(sockets.size, 1);
    assert.equal([...sockets][0].getProtocol(), maxVersion);
    agent.destroy();
  }
});

onBothDrivers('https: a body of a megabyte arrives, and comes back', withTls(), async (server) => {
  for (const maxVersion of VERSIONS) {
    const data = `${maxVersion}${'x'.repeat(1_000_000)}`;
    const body = JSON.stringify({ channel: maxVersion, data });
    assert.equal((await request(server, '/api/publish', { method: 'POST', body, maxVersion })).status, 200);
    const read = await request(server, `/v1/stream/${maxVersion}?offset=-1`, { maxVersion });
    assert.ok(JSON.parse(read.text)[0] === data);
  }
});

onBothDrivers('https: events come while their response goes on', withTls(), async (server) => {
  for (const maxVersion of VERSIONS) {
    const channel = maxVersion.replace('.', '-');
    await server.publish(channel, { data: 0 });
    const sent = https.get(server.url('http', `/v1/stream/${channel}?offset=-1&live=sse`), { ...server.trust, maxVersion });
    const [response] = await once(sent, 'response');
    assert.match(response.headers['content-type'], /^text\/event-stream/);
    const lines = createInterface({ input: response });
    // The response is cut off at the end of this test.
    lines.on('error', () => {});
    let number = 0;
    for await (const line of lines) {
      if (line !== `data:[${number}]`) continue;
      number += 1;
      if (number === 5) break;
      await server.publish(channel, { data: number });
    }
    sent.destroy();
  }
});

// A session to resume. With TLS 1.3 its ticket comes behind the handshake, before the first answer.
async function sessionOf(server, options) {
  const socket = await shake(server, options);
  assert.match(await ask(socket), /^HTTP\/1.1 200/);
  const session = socket.getSession();
  socket.destroy();
  return session;
}

onBothDrivers('a client with a ticket resumes', withTls(), async (server) => {
  for (const maxVersion of VERSIONS) {
    const session = await sessionOf(server, { maxVersion });
    for (let again = 0; again < 4; again++) {
      const socket = await shake(server, { maxVersion, session });
      assert.ok(socket.isSessionReused(), maxVersion);
      assert.match(await ask(socket), /^HTTP\/1.1 200/);
      socket.destroy();
    }
  }
  assert.equal(await server.metric('myriad_tls_handshakes_total{kind="full"}'), 2);
  assert.equal(await server.metric('myriad_tls_handshakes_total{kind="resumed"}'), 8);
});

onBothDrivers('a ticket of another server leads to a full handshake', withTls(), async (server) => {
  const other = await Server.start(server.driver, ...withTls());
  try {
    for (const maxVersion of VERSIONS) {
      const session = await sessionOf(other, { maxVersion });
      const socket = await shake(server, { maxVersion, session });
      assert.equal(socket.isSessionReused(), false, maxVersion);
      assert.match(await ask(socket), /^HTTP\/1.1 200/);
      socket.destroy();
    }
  } finally {
    await other.stop();
  }
});

// The alert with which a handshake is refused. A client may send before it hears of it.
async function refusal(server, options) {
  const [host, port] = server.secure.split(':');
  const socket = connect({ host, port: Number(port), servername: 'localhost', ...server.trust, ...options });
  socket.resume();
  try {
    await once(socket, 'end');
    return 'the end';
  } catch (error) {
    return error.code;
  } finally {
    socket.destroy();
  }
}

onBothDrivers('protocols: HTTP/1.1 is chosen, and who speaks only others is refused', withTls(), async (server) => {
  for (const maxVersion of VERSIONS) {
    for (const [ALPNProtocols, chosen] of [[['http/1.1'], 'http/1.1'], [['h2', 'http/1.1'], 'http/1.1'], [[], false]]) {
      const socket = await shake(server, { ALPNProtocols, maxVersion });
      assert.equal(socket.alpnProtocol, chosen);
      assert.match(await ask(socket), /^HTTP\/1.1 200/);
      socket.destroy();
    }
    assert.equal(await refusal(server, { ALPNProtocols: ['h2'], maxVersion }), 'ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL');
  }
});

onBothDrivers('TLS 1.2 is refused where 1.3 is asked for', withTls('--tls-min-version', '1.3'), async (server) => {
  assert.equal(await refusal(server, { maxVersion: 'TLSv1.2' }), 'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION');
  const socket = await shake(server);
  assert.equal(socket.getProtocol(), 'TLSv1.3');
  socket.destroy();
});

onBothDrivers('who does not know the authority goes, and nobody else notices', withTls(), async (server) => {
  const client = await server.connect('/raw?channel=c');
  for (const maxVersion of VERSIONS) {
    const { code } = await request(server, '/healthz', { ca: new Authority('strangers').pem, maxVersion }).catch((error) => error);
    assert.equal(code, 'UNABLE_TO_VERIFY_LEAF_SIGNATURE');
  }
  await server.publish('c', { data: 'on' });
  assert.equal(await client.next(), 'on');
});

onBothDrivers('who speaks no TLS is told so', withTls(), async (server) => {
  const answer = await fetch(`http://${server.secure}/healthz`);
  assert.equal(answer.status, 400);
  assert.match(await answer.text(), /TLS|https/);
});

const FIRST = authority().issue(['DNS:first.example']);
const SECOND = authority().issue(['DNS:second.example', 'DNS:*.second.example'], 'RSA');
const NAMES = withConfig(
  '[[tls.certificates]]',
  `certificate = "${SECOND.files.certificate}"`,
  `key = "${SECOND.files.key}"`,
);

onBothDrivers('the name that a client asks for chooses the certificate', [...using(FIRST), ...NAMES], async (server) => {
  for (const maxVersion of VERSIONS) {
    for (const [servername, expected] of [
      ['first.example', 'first.example'], ['second.example', 'second.example'], ['a.second.example', 'second.example'],
      // The first pair is for everybody else, who may not like it.
      ['third.example', 'first.example'], ['', 'first.example'],
    ]) {
      const socket = await shake(server, { servername, maxVersion, checkServerIdentity: () => undefined });
      assert.equal(socket.getPeerCertificate().subject.CN, expected, `${servername} with ${maxVersion}`);
      assert.match(await ask(socket), /^HTTP\/1.1 200/);
      socket.destroy();
    }
  }
});

for (const kind of ['P-384', 'RSA']) {
  const own = using(authority().issue(undefined, kind));
  onBothDrivers(`many clients at once shake hands with a key of ${kind}`, own, async (server) => {
    for (const maxVersion of VERSIONS) {
      const clients = await Promise.all(Array.from({ length: 20 }, () => server.connect('/raw?channel=c', { maxVersion })));
      await server.publish('c', { data: maxVersion });
      for (const client of clients) assert.equal(await client.next(), maxVersion);
    }
  });
}

const DEVICES = new Authority('devices');
const device = DEVICES.issue(['DNS:device.example']);
const stranger = new Authority('strangers').issue(['DNS:device.example']);
const DEMANDED = withTls('--tls-client-ca', DEVICES.file);
const pair = ({ cert, key }) => ({ cert, key });

onBothDrivers('clients that have to show a certificate', DEMANDED, async (server) => {
  for (const maxVersion of VERSIONS) {
    // TLS 1.2 has no alert of its own for that (RFC 5246, 7.4.6).
    const alert = maxVersion === 'TLSv1.3' ? 'TLSV13_ALERT_CERTIFICATE_REQUIRED' : 'SSLV3_ALERT_HANDSHAKE_FAILURE';
    assert.equal(await refusal(server, { maxVersion }), `ERR_SSL_${alert}`);
    assert.match(await refusal(server, { maxVersion, ...pair(stranger) }), /_ALERT_UNKNOWN_CA$/);
    const client = await server.connect('/raw?channel=c', { maxVersion, ...pair(device) });
    await server.publish('c', { data: 'to devices' });
    assert.equal(await client.next(), 'to devices');
    // Nobody resumes: a ticket would make up for a certificate that has expired since, or whose CA is gone.
    const first = await shake(server, { maxVersion, ...pair(device) });
    assert.match(await ask(first), /^HTTP\/1.1 200/);
    const second = await shake(server, { maxVersion, session: first.getSession(), ...pair(device) });
    assert.match(await ask(second), /^HTTP\/1.1 200/);
    assert.equal(second.isSessionReused(), false);
    for (const socket of [first, second]) socket.destroy();
  }
  assert.equal(await server.metric('myriad_tls_handshakes_failed_total{reason="client_certificate"}'), 4);
});

const ASKED = withTls('--tls-client-ca', DEVICES.file, '--tls-client-auth', 'optional');

onBothDrivers('clients that may show a certificate', ASKED, async (server) => {
  for (const maxVersion of VERSIONS) {
    for (const options of [{}, pair(device)]) {
      const client = await server.connect('/raw?channel=c', { maxVersion, ...options });
      await server.publish('c', { data: 'to all' });
      assert.equal(await client.next(), 'to all');
      await client.close();
    }
    assert.match(await refusal(server, { maxVersion, ...pair(stranger) }), /_ALERT_UNKNOWN_CA$/);
  }
});
