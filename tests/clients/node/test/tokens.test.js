// Tokens through the SDK: who a client is, for how long, and what it may subscribe to.

import assert from 'node:assert/strict';
import { RIGHTS, withConfig, withSdk } from '../sdk.js';
import { hmacToken, inSeconds, keyPair } from '../tokens.js';

const SECRET = 'a secret of the tests, long enough to be one';
const withSecret = (...client) => withConfig(
  '[client]',
  ...client,
  '[client.token]',
  `hmac_secret_key = "${SECRET}"`,
  '[channel.without_namespace]',
  'presence = true',
  ...RIGHTS,
);
const HMAC = withSecret('expired_close_delay = "1s"', 'expired_sub_close_delay = "1s"');
// A client on a busy machine may come with its next token seconds late.
const PATIENT = withSecret('expired_close_delay = "25s"', 'expired_sub_close_delay = "25s"');
const token = (claims) => hmacToken(SECRET, claims);

withSdk('a token says who a client is', HMAC, async ({ client }) => {
  const one = client({ token: token({ sub: '42', info: { name: 'Ann' } }) });
  const id = await one.connect();
  const room = await one.subscribe('room');
  const { clients } = await room.sdk.presence();
  assert.equal(clients[id].user, '42');
  assert.deepEqual(one.encoding.decode(clients[id].connInfo), { name: 'Ann' });
});

withSdk('a token that is not valid keeps its client away', HMAC, async ({ client }) => {
  const [text, claims] = token({ sub: '42' }).split('.');
  const none = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${claims}.`;
  for (const shown of ['x', `${text}.${claims}.x`, none, hmacToken('another secret', { sub: '42' })]) {
    const one = client({ token: shown });
    one.centrifuge.connect();
    assert.equal((await one.events.next('disconnected')).code, 3500);
  }
});

withSdk('a client with an expired token gets another one and connects', HMAC, async ({ client }) => {
  let asked = 0;
  const getToken = async () => {
    asked += 1;
    return token({ sub: '42', exp: inSeconds(600) });
  };
  const one = client({ token: token({ sub: '42', exp: inSeconds(-1) }), getToken });
  // Subscriptions go out in the frame of the connect command, so they have to be asked for again.
  const room = one.subscription('room');
  room.sdk.subscribe();
  await one.connect();
  await room.events.next('subscribed');
  assert.equal(asked, 1);
});

withSdk('a connection goes on as long as it is refreshed', PATIENT, async ({ server, client }) => {
  const tokens = [2, 600].map((seconds) => token({ sub: '42', exp: inSeconds(seconds) }));
  let refreshed;
  const done = new Promise((resolve) => { refreshed = resolve; });
  const one = client({
    getToken: async () => {
      if (tokens.length === 1) refreshed();
      return tokens.shift();
    },
  });
  await one.connect();
  const room = await one.subscribe('room');
  await done;
  await server.publish('room', { data: 'after the refresh' });
  assert.equal(await room.value(), 'after the refresh');
  assert.equal(one.events.untaken('disconnected').length, 0);
  assert.equal(one.sockets.length, 1);
});

withSdk('a connection that nobody refreshes ends, and begins again with another token', HMAC, async ({ client }) => {
  const tokens = [0.2, 600].map((seconds) => ({ sub: '42', exp: inSeconds(seconds) }));
  const one = client({ getToken: () => new Promise((resolve) => {
    // The answer to the refresh comes after the end of the connection.
    const claims = tokens.shift();
    if (tokens.length === 0 && one.sockets.length === 1) one.sockets[0].on('close', () => resolve(token(claims)));
    else resolve(token(claims));
  }) });
  await one.connect();
  await one.events.next('connecting');
  const lost = await one.events.next('connecting');
  assert.equal(lost.code, 3005);
});

withSdk('a private channel needs a token of its own', HMAC, async ({ server, client }) => {
  const one = client({ token: token({ sub: '42' }) });
  await one.connect();
  const bare = one.subscription('$bare');
  bare.sdk.subscribe();
  assert.equal((await bare.events.next('unsubscribed')).code, 103);
  let asked = 0;
  const getToken = async ({ channel }) => {
    asked += 1;
    return token({ sub: '42', channel, exp: inSeconds(asked === 1 ? -1 : 600) });
  };
  const news = await one.subscribe('$news', { getToken });
  assert.equal(asked, 2, 'the first has expired');
  await server.publish('$news', { data: 5 });
  assert.equal(await news.value(), 5);
});

withSdk('a subscription goes on as long as it is refreshed', PATIENT, async ({ server, client }) => {
  const one = client({ token: token({ sub: '42' }) });
  await one.connect();
  const left = [2, 600];
  let refreshed;
  const done = new Promise((resolve) => { refreshed = resolve; });
  const getToken = async ({ channel }) => {
    const exp = inSeconds(left.shift());
    if (left.length === 0) refreshed();
    return token({ sub: '42', channel, exp });
  };
  const news = await one.subscribe('$news', { getToken });
  await done;
  await server.publish('$news', { data: 6 });
  assert.equal(await news.value(), 6);
  assert.equal(news.events.untaken('subscribing').length, 1);
});

withSdk('a token grants channels', HMAC, async ({ server, client }) => {
  const subs = { $own: { data: { hello: 1 }, info: { role: 'owner' } } };
  const one = client({ token: token({ sub: '42', subs }) });
  const made = new Promise((resolve) => { one.centrifuge.on('subscribed', resolve); });
  await one.connect();
  const context = await made;
  assert.equal(context.channel, '$own');
  assert.deepEqual(one.encoding.decode(context.data), { hello: 1 });
  await server.publish('$own', { data: 7 });
  const publication = await one.events.next('publication');
  assert.equal(one.encoding.decode(publication.data), 7);
});

for (const algorithm of ['RS256', 'ES256', 'EdDSA']) {
  const pair = keyPair(algorithm);
  const name = { RS256: 'rsa', ES256: 'ecdsa', EdDSA: 'eddsa' }[algorithm];
  const flags = withConfig('[client.token]', `${name}_public_key = """\n${pair.pem}"""`, '[channel.without_namespace]', ...RIGHTS);
  withSdk(`a token by ${algorithm} is verified beside the shards`, flags, async ({ client }) => {
    const one = client({ token: pair.token({ sub: '42', exp: inSeconds(600) }) });
    await one.connect();
    const news = await one.subscribe('$news', { token: pair.token({ sub: '42', channel: '$news' }) });
    await one.centrifuge.publish('room', one.encoding.encode(1));
    assert.equal(news.sdk.state, 'subscribed');
    const other = client({ token: keyPair(algorithm).token({ sub: '42' }) });
    other.centrifuge.connect();
    assert.equal((await other.events.next('disconnected')).code, 3500);
    // A public key is no secret.
    const confused = client({ token: hmacToken(pair.pem, { sub: '42' }) });
    confused.centrifuge.connect();
    assert.equal((await confused.events.next('disconnected')).code, 3500);
  });
}
