// The SDK over HTTP: replies in a response that goes on, commands in requests of their own.

import { Centrifuge as JsonCentrifuge } from 'centrifuge';
import { Centrifuge as ProtobufCentrifuge } from 'centrifuge/build/protobuf';
import { EventSource } from 'eventsource';
import { Events, SdkSubscription } from './sdk.js';
import { onBothDrivers } from './server.js';
import { Wire } from './wire.js';

const encoder = new TextEncoder();
const decoder = new TextDecoder();

const kinds = [
  { transport: 'http_stream', Centrifuge: JsonCentrifuge, encode: (value) => value, decode: (data) => data },
  {
    transport: 'http_stream',
    name: 'protobuf',
    Centrifuge: ProtobufCentrifuge,
    encode: (value) => encoder.encode(JSON.stringify(value)),
    decode: (data) => JSON.parse(decoder.decode(data)),
  },
  { transport: 'sse', Centrifuge: JsonCentrifuge, encode: (value) => value, decode: (data) => data },
];

// One test on each driver for each kind of emulated client. `client(options)` makes one that has a way to the server of its own.
export function emulated(name, flags, body) {
  for (const kind of kinds) {
    const title = `${kind.transport}${kind.name ? `, ${kind.name}` : ''}: ${name}`;
    onBothDrivers(title, flags, async (server) => {
      const clients = [];
      const client = async (options) => {
        clients.push(await EmulatedClient.open(server, kind, options));
        return clients.at(-1);
      };
      try {
        await body({ server, client, kind });
      } finally {
        for (const made of clients) made.end();
      }
    });
  }
}

class EmulatedClient {
  static async open(server, kind, options) {
    const client = new EmulatedClient();
    client.wire = await Wire.to(server.secure ?? server.address);
    client.encoding = kind;
    const base = `${server.secure ? 'https' : 'http'}://${client.wire.address}`;
    class Source extends EventSource {
      constructor(url, init) {
        super(url, { ...init, fetch: server.fetch });
      }
    }
    client.centrifuge = new kind.Centrifuge(
      [{ transport: kind.transport, endpoint: `${base}/connection/${kind.transport}` }],
      {
        emulationEndpoint: `${base}/emulation`,
        fetch: server.fetch,
        readableStream: ReadableStream,
        eventsource: Source,
        minReconnectDelay: 1,
        maxReconnectDelay: 50,
        ...options,
      },
    );
    client.events = new Events(client.centrifuge, ['connecting', 'connected', 'disconnected', 'error', 'publication']);
    return client;
  }

  async connect() {
    this.centrifuge.connect();
    return this.events.next('connected');
  }

  async subscribe(channel, options) {
    const sdk = this.centrifuge.newSubscription(channel, { minResubscribeDelay: 1, maxResubscribeDelay: 50, ...options });
    const subscription = new SdkSubscription(sdk, this.encoding);
    sdk.subscribe();
    subscription.context = await subscription.events.next('subscribed');
    return subscription;
  }

  end() {
    this.centrifuge.disconnect();
    this.wire.end();
  }
}
