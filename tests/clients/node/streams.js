// Channels as streams, through npm's client of the Durable Streams protocol.

import { stream } from '@durable-streams/client';
import { Mailbox } from './mailbox.js';

// How its client may read what comes: `true` catches up by plain reads and goes on by polls.
export const LIVE = ['long-poll', 'sse', true];

// A stream's address. A channel's name may have slashes, which stay as they are.
export function addressOf(server, channel) {
  const origin = server.url?.('http') ?? `http://${server.address}`;
  return `${origin}/v1/stream/${channel.split('/').map(encodeURIComponent).join('/')}`;
}

// What the stream has now, and where that ends.
export async function catchUp(url, options) {
  const response = await stream({ url, live: false, ...options });
  return { items: await response.json(), offset: response.offset };
}

// A reader that goes on: its items wait in a mailbox.
export class Reader {
  items = new Mailbox();

  // Returns once its first request is answered, or refused.
  static async open(url, live, options) {
    const reader = new Reader();
    reader.response = await stream({ url, live, offset: '-1', ...options });
    // Why it has ended: an error, or undefined at the end of the stream.
    reader.closed = reader.response.closed.then(() => undefined, (error) => error);
    // After a proper end the last items may be on their way still.
    reader.closed.then((error) => error && reader.items.fail(error));
    reader.response.subscribeJson(async (batch) => {
      for (const item of batch.items) reader.items.put(item);
      reader.offset = batch.offset;
    });
    return reader;
  }

  end() {
    this.response.cancel();
  }
}
