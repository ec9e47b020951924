// What applications do with the SDK, in the order in which they meet it.

import assert from 'node:assert/strict';
import { withConfig, withSdk } from '../sdk.js';

withSdk('a client connects and is told who it is', [], async ({ client }) => {
  const one = client();
  const first = await one.connect();
  const second = await client().connect();
  assert.match(first, /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/);
  assert.notEqual(first, second);
  one.centrifuge.disconnect();
  assert.deepEqual(await one.events.next('disconnected'), { code: 0, reason: 'disconnect called' });
});

withSdk('a channel has one order for every subscriber and both ways to publish', [], async ({ server, client }) => {
  const clients = [client(), client(), client()];
  const subscriptions = [];
  for (const one of clients) {
    await one.connect();
    subscriptions.push(await one.subscribe('room'));
  }
  const rounds = Array.from({ length: 25 }, (_, round) => round);
  await Promise.all([
    ...subscriptions.map(async (subscription, sender) => {
      for (const round of rounds) await subscription.publish({ sender, round });
    }),
    (async () => {
      for (const round of rounds) await server.publish('room', { data: { sender: 'api', round } });
    })(),
  ]);
  const [order, ...others] = await Promise.all(subscriptions.map((one) => one.values(100)));
  for (const other of others) assert.deepEqual(other, order);
  for (const sender of [0, 1, 2, 'api']) {
    const own = order.filter((value) => value.sender === sender).map(({ round }) => round);
    assert.deepEqual(own, rounds);
  }
});

withSdk('a publication names its client, and its offset', [], async ({ server, client }) => {
  const one = client();
  const id = await one.connect();
  const room = await one.subscribe('room');
  await room.publish({ text: 'käse \u{1f9c0}\n' });
  await server.publish('room', { data: [null, 'x', 1.5] });
  const own = await room.events.next('publication');
  assert.deepEqual(one.encoding.decode(own.data), { text: 'käse \u{1f9c0}\n' });
  assert.equal(own.info.client, id);
  assert.equal(own.info.user, '');
  assert.equal(own.offset, 1);
  const other = await room.events.next('publication');
  assert.deepEqual(one.encoding.decode(other.data), [null, 'x', 1.5]);
  assert.equal(other.info, undefined);
  assert.equal(other.offset, 2);
});

withSdk('a client may publish where it has not subscribed', [], async ({ client }) => {
  const [one, other] = [client(), client()];
  await one.connect();
  await other.connect();
  const room = await other.subscribe('room');
  await one.publish('room', 'hello');
  assert.equal(await room.value(), 'hello');
});

withSdk('history is read forward and backward in pages', [], async ({ server, client }) => {
  const one = client();
  await one.connect();
  const room = await one.subscribe('room');
  assert.deepEqual(await room.history({ limit: 10 }), { ...(await room.history({ limit: 0 })), values: [] });
  for (let number = 1; number <= 25; number++) await server.publish('room', { data: number });

  const top = await room.history({ limit: 0 });
  assert.deepEqual([top.values, top.offset], [[], 25]);
  let since = { offset: 0, epoch: top.epoch };
  const forward = [];
  for (;;) {
    const page = await room.history({ limit: 10, since });
    if (page.values.length === 0) break;
    assert.deepEqual([page.offset, page.epoch], [25, top.epoch]);
    forward.push(page.values);
    since = { offset: page.publications.at(-1).offset, epoch: page.epoch };
  }
  assert.deepEqual(forward.map((page) => page.length), [10, 10, 5]);
  assert.deepEqual(forward.flat(), Array.from({ length: 25 }, (_, index) => index + 1));

  const newest = await room.history({ limit: 10, reverse: true });
  assert.deepEqual(newest.values, [25, 24, 23, 22, 21, 20, 19, 18, 17, 16]);
  since = { offset: newest.publications.at(-1).offset, epoch: newest.epoch };
  const older = await room.history({ limit: 10, reverse: true, since });
  assert.deepEqual(older.values, [15, 14, 13, 12, 11, 10, 9, 8, 7, 6]);
});

withSdk('history from a position of another epoch is an error', [], async ({ client }) => {
  const one = client();
  await one.connect();
  const room = await one.subscribe('room');
  await room.publish('a');
  await assert.rejects(room.history({ limit: 1, since: { offset: 0, epoch: 'other' } }), {
    code: 112,
    message: 'unrecoverable position',
  });
  const since = { offset: 0, epoch: (await room.history({ limit: 0 })).epoch };
  await assert.rejects(room.history({ limit: 1, reverse: true, since }), { code: 107, message: 'bad request' });
});

withSdk('members are listed and counted', [], async ({ client }) => {
  const clients = [client(), client(), client()];
  const ids = [];
  for (const one of clients) {
    ids.push(await one.connect());
    await one.subscribe('room');
  }
  const { clients: members } = await clients[0].centrifuge.presence('room');
  assert.deepEqual(Object.keys(members).sort(), [...ids].sort());
  for (const id of ids) assert.deepEqual([members[id].client, members[id].user], [id, '']);
  // Clients without a user count as one user.
  assert.deepEqual(await clients[0].centrifuge.presenceStats('room'), { numClients: 3, numUsers: 1 });
  const empty = await clients[0].centrifuge.presenceStats('nobody');
  assert.deepEqual(empty, { numClients: 0, numUsers: 0 });
});

withSdk('joins and leaves are announced to those who wish it', [], async ({ client }) => {
  const [one, other] = [client(), client()];
  const [id, otherId] = [await one.connect(), await other.connect()];
  const room = await one.subscribe('room', { joinLeave: true });
  assert.equal((await room.events.next('join')).info.client, id);
  const deaf = await other.subscribe('room');
  assert.equal((await room.events.next('join')).info.client, otherId);
  deaf.sdk.unsubscribe();
  const left = (await room.events.next('leave')).info;
  assert.deepEqual([left.client, left.user], [otherId, '']);
  deaf.sdk.subscribe();
  assert.equal((await room.events.next('join')).info.client, otherId);
  other.cut();
  assert.equal((await room.events.next('leave')).info.client, otherId);
  assert.equal(deaf.events.untaken('join').length, 0);
});

withSdk('after an unsubscribe nothing arrives', [], async ({ server, client }) => {
  const [one, other] = [client(), client()];
  await one.connect();
  await other.connect();
  const room = await one.subscribe('room');
  const witness = await other.subscribe('room');
  await server.publish('room', { data: 1 });
  assert.equal(await room.value(), 1);
  room.sdk.unsubscribe();
  assert.deepEqual(await room.events.next('unsubscribed'), {
    channel: 'room', code: 0, reason: 'unsubscribe called',
  });
  // A command after the unsubscribe: its answer says that the server has handled both.
  await one.centrifuge.presenceStats('room');
  await server.publish('room', { data: 2 });
  assert.deepEqual(await witness.values(2), [1, 2]);
  // Whoever comes back gets what it missed, since the SDK keeps its position.
  room.sdk.subscribe();
  assert.equal(await room.value(), 2);
  assert.equal((await room.events.next('subscribed')).recovered, true);
});

const RESTRICTED = withConfig(
  '[client]',
  'channel_limit = 3',
  'history_max_publication_limit = 5',
  '[channel.without_namespace]',
  'allow_subscribe_for_client = true',
  'allow_subscribe_for_anonymous = true',
  '[[channel.namespaces]]',
  'name = "closed"',
  '[[channel.namespaces]]',
  'name = "typed"',
  'allow_subscribe_for_client = true',
  'allow_subscribe_for_anonymous = true',
  'allow_publish_for_client = true',
  'allow_publish_for_anonymous = true',
  'publication_data_format = "json_object"',
);

withSdk('an error has the code that the SDK acts on', RESTRICTED, async ({ client }) => {
  const one = client();
  await one.connect();
  for (const [channel, code, reason] of [
    ['closed:room', 103, 'permission denied'],
    ['$private', 103, 'permission denied'],
    ['unknown:room', 102, 'unknown channel'],
    ['r'.repeat(256), 107, 'bad request'],
    ['käse', 107, 'bad request'],
  ]) {
    const refused = one.subscription(channel);
    refused.sdk.subscribe();
    assert.deepEqual(await refused.events.next('unsubscribed'), { channel, code, reason });
  }
  for (const channel of ['a', 'b', 'c']) await one.subscribe(channel);
  const surplus = one.subscription('d');
  surplus.sdk.subscribe();
  assert.equal((await surplus.events.next('unsubscribed')).code, 106);

  const rejects = (promise, code, message) => assert.rejects(promise, { code, message });
  await rejects(one.publish('a', 1), 103, 'permission denied');
  await rejects(one.publish('unknown:room', 1), 102, 'unknown channel');
  await rejects(one.publish('typed:room', [1]), 107, 'bad request');
  await one.publish('typed:room', { fine: true });
  await rejects(one.centrifuge.presence('a'), 108, 'not available');
  await rejects(one.centrifuge.presenceStats('a'), 108, 'not available');
  await rejects(one.centrifuge.history('a', { limit: 1 }), 108, 'not available');
  await rejects(one.centrifuge.rpc('method', one.encoding.encode({})), 108, 'not available');
  assert.equal(one.events.untaken('disconnected').length, 0);
});
