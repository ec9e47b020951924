// What stands between a client and the server, and can break.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';

export class Wire {
  #sockets = new Set();
  #isBroken = false;

  // A way to the server at `address`, which may be changed later by `target`.
  static async to(address) {
    const wire = new Wire();
    wire.target = address;
    wire.server = createServer((near) => wire.#join(near));
    wire.server.listen(0, '127.0.0.1');
    await once(wire.server, 'listening');
    wire.address = `127.0.0.1:${wire.server.address().port}`;
    return wire;
  }

  #join(near) {
    if (this.#isBroken) return near.destroy();
    const [host, port] = this.target.split(':');
    const far = connect(Number(port), host);
    for (const [from, to] of [[near, far], [far, near]]) {
      this.#sockets.add(from);
      from.pipe(to);
      from.on('error', () => to.destroy());
      from.on('close', () => {
        this.#sockets.delete(from);
        to.destroy();
      });
    }
  }

  // Ends all connections. New ones get through.
  cut() {
    for (const socket of this.#sockets) socket.destroy();
  }

  // Ends all connections, and lets none through until `mend`.
  break() {
    this.#isBroken = true;
    this.cut();
  }

  mend() {
    this.#isBroken = false;
  }

  end() {
    this.server.close();
    this.break();
  }
}
