// The server as applications see it: through npm's SDK of the Centrifuge protocol, in both of its encodings.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Centrifuge as JsonCentrifuge } from 'centrifuge';
import { Centrifuge as ProtobufCentrifuge } from 'centrifuge/build/protobuf';
import WebSocket from 'ws';
import { onBothDrivers, Server } from './server.js';

const encoder = new TextEncoder();
const decoder = new TextDecoder();

// What differs between the encodings: the class, and data, which is any value in JSON and bytes in protobuf.
const encodings = [
  { name: 'JSON', Centrifuge: JsonCentrifuge, encode: (value) => value, decode: (data) => data },
  {
    name: 'protobuf',
    Centrifuge: ProtobufCentrifuge,
    encode: (value) => encoder.encode(JSON.stringify(value)),
    decode: (data) => JSON.parse(decoder.decode(data)),
  },
];

// One test on each driver for each encoding. `body` gets the server and `client(options)`, which makes an SDK client that
// is closed at the end. Options are those of the SDK, `user`, which goes into the header X-User, and `tls`, options of the connection.
export function withSdk(name, flags, body) {
  for (const encoding of encodings) {
    onBothDrivers(`SDK, ${encoding.name}: ${name}`, flags, async (server, context) => {
      const clients = [];
      const client = (options) => {
        clients.push(new SdkClient(server, encoding, options));
        return clients.at(-1);
      };
      try {
        await body({ server, client, encoding, context });
      } finally {
        for (const made of clients) made.centrifuge.disconnect();
      }
    });
  }
}

// Flags that start a server with these lines as its config file. The files go when the process ends.
export function withConfig(...lines) {
  const directory = mkdtempSync(join(tmpdir(), 'myriad-sdk-'));
  process.on('exit', () => rmSync(directory, { recursive: true, force: true }));
  const file = join(directory, 'myriad.toml');
  writeFileSync(file, `${lines.join('\n')}\n`);
  return ['--config', file];
}

// Lines that give every client the rights to subscribe, publish, and read history and members.
export const RIGHTS = ['subscribe', 'publish', 'history', 'presence'].flatMap((right) => [
  `allow_${right}_for_client = true`,
  `allow_${right}_for_anonymous = true`,
]);

// Ends a server and starts one with the same address, as an operator would.
export async function restart(server, ...flags) {
  await server.stop();
  const secure = server.secure ? ['--tls-listen', server.secure] : [];
  return Server.start(server.driver, '--listen', server.address, ...secure, ...flags);
}

// A client of the SDK with its sockets, so that a test can cut the connection without a word to the SDK.
export class SdkClient {
  constructor(server, encoding, { user, tls, ...options } = {}) {
    const sockets = [];
    const headers = user === undefined ? {} : { 'X-User': user };
    class Recorded extends WebSocket {
      constructor(address, protocols) {
        super(address, protocols, { headers, ...server.trust, ...tls });
        sockets.push(this);
      }
    }
    this.sockets = sockets;
    this.encoding = encoding;
    this.centrifuge = new encoding.Centrifuge(server.url('ws', '/connection/websocket'), {
      websocket: Recorded,
      minReconnectDelay: 1,
      maxReconnectDelay: 50,
      ...options,
    });
    this.events = new Events(this.centrifuge, [
      'connecting', 'connected', 'disconnected', 'error', 'subscribed', 'unsubscribed', 'publication', 'join', 'leave',
    ]);
  }

  // Connects, and returns the id that the server has given to the client.
  async connect() {
    this.centrifuge.connect();
    return (await this.events.next('connected')).client;
  }

  // Breaks the connection from outside.
  cut() {
    this.sockets.at(-1).terminate();
  }

  // A subscription with its events; `subscribe` below waits until it is made.
  subscription(channel, options = {}) {
    const subscription = this.centrifuge.newSubscription(channel, {
      minResubscribeDelay: 1,
      maxResubscribeDelay: 50,
      ...options,
    });
    return new SdkSubscription(subscription, this.encoding);
  }

  async subscribe(channel, options) {
    const subscription = this.subscription(channel, options);
    subscription.sdk.subscribe();
    subscription.context = await subscription.events.next('subscribed');
    return subscription;
  }

  publish(channel, value) {
    return this.centrifuge.publish(channel, this.encoding.encode(value));
  }
}

export class SdkSubscription {
  constructor(subscription, encoding) {
    this.sdk = subscription;
    this.encoding = encoding;
    this.events = new Events(subscription, [
      'subscribing', 'subscribed', 'unsubscribed', 'publication', 'join', 'leave', 'error',
    ]);
  }

  publish(value) {
    return this.sdk.publish(this.encoding.encode(value));
  }

  // The value of the next publication.
  async value() {
    return this.encoding.decode((await this.events.next('publication')).data);
  }

  async values(count) {
    const values = [];
    while (values.length < count) values.push(await this.value());
    return values;
  }

  // The values of a page of history.
  async history(options) {
    const page = await this.sdk.history(options);
    return { ...page, values: page.publications.map(({ data }) => this.encoding.decode(data)) };
  }
}

// Events of an emitter, to wait for in their order.
export class Events {
  #queues = new Map();

  constructor(emitter, names) {
    for (const name of names) {
      const queue = { happened: [], waiting: [] };
      this.#queues.set(name, queue);
      emitter.on(name, (context) => {
        const waiting = queue.waiting.shift();
        if (waiting) waiting(context);
        else queue.happened.push(context);
      });
    }
  }

  // The next event of this name that nobody has taken yet.
  next(name) {
    const queue = this.#queues.get(name);
    if (queue.happened.length > 0) return Promise.resolve(queue.happened.shift());
    return new Promise((resolve) => queue.waiting.push(resolve));
  }

  // Events that nobody has taken yet.
  untaken(name) {
    return this.#queues.get(name).happened;
  }
}
