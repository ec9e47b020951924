// The real binary, and the few words of HTTP that the tests say to it.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import { Agent, fetch as undiciFetch } from 'undici';
import WebSocket from 'ws';
import { authority } from './certificates.js';

const root = new URL('../../../', import.meta.url);

function binary() {
  const named = process.env.MYRIAD_BIN ?? process.env.MYRIAD;
  const built = ['target/release/myriad', 'target/debug/myriad'].map((path) => fileURLToPath(new URL(path, root)));
  const found = named ?? built.find(existsSync);
  if (!found) throw new Error('no server: build it (cargo build --release), or name it in MYRIAD_BIN');
  return found;
}

export class Server {
  #child;
  #log = [];
  #agent;

  // Starts a server on a port of the kernel's choice, and waits until it accepts. With a key of its own it is one for real, without
  // one a development server. With a certificate it speaks TLS too, at `secure`.
  static async start(driver, ...flags) {
    const server = new Server();
    const listen = flags.includes('--listen') ? [] : ['--listen', '127.0.0.1:0'];
    const dev = flags.includes('--api-key') ? [] : ['--dev'];
    const hasTls = flags.includes('--tls-certificate');
    // Options of TLS that its clients need: whom they believe, and perhaps who they are.
    server.trust = hasTls ? { ca: authority().pem } : {};
    const tlsListen = hasTls && !flags.includes('--tls-listen') ? ['--tls-listen', '127.0.0.1:0'] : [];
    const fixed = ['serve', ...listen, ...tlsListen, '--max-connections', '2000', '--drain', '0', ...dev];
    server.#child = spawn(binary(), [...fixed, '--driver', driver, ...flags], { stdio: ['ignore', 'ignore', 'pipe'] });
    server.exited = once(server.#child, 'exit');
    const lines = createInterface({ input: server.#child.stderr });
    const ready = new Promise((resolve, reject) => {
      lines.on('line', (line) => {
        server.#log.push(line);
        const address = /^listening on (\S+) \((\w+),/.exec(line);
        if (address) {
          server.driver = address[2];
          server.address = address[1];
        }
        server.secure ??= /^TLS on (\S+) /.exec(line)?.[1];
        if (server.address && (server.secure || !hasTls)) resolve();
      });
      lines.on('close', () => reject(new Error(server.#log.join('\n'))));
    });
    await ready;
    return server;
  }

  // Where clients find a path: by TLS where the server speaks it, and otherwise without.
  url(scheme, path = '') {
    return this.secure ? `${scheme}s://${this.secure}${path}` : `${scheme}://${this.address}${path}`;
  }

  // The function `fetch` for this server.
  get fetch() {
    if (!this.secure) return fetch;
    this.#agent ??= new Agent({ connect: this.trust });
    return (url, options) => undiciFetch(url, { ...options, dispatcher: this.#agent });
  }

  get log() {
    return this.#log.join('\n');
  }

  signal(name = 'SIGTERM') {
    this.#child.kill(name);
  }

  // Ends it and returns its exit code.
  async stop() {
    if (this.#child.exitCode === null) this.signal();
    const [code, signal] = await this.exited;
    return code ?? signal;
  }

  // An open WebSocket with its messages, errors and end to wait for.
  async connect(path, options = {}) {
    const client = new Client(this.url('ws', path), { ...this.trust, ...options });
    await once(client.socket, 'open');
    return client;
  }

  async publish(channel, body) {
    const response = await fetch(`http://${this.address}/api/publish`, {
      method: 'POST',
      body: JSON.stringify({ channel, ...body }),
    });
    if (response.status !== 200) throw new Error(`${response.status}: ${await response.text()}`);
    return (await response.json()).result.offset;
  }

  async metric(name) {
    const response = await fetch(`http://${this.address}/metrics`);
    const line = (await response.text()).split('\n').find((line) => line.startsWith(`${name} `));
    return line === undefined ? undefined : Number(line.slice(name.length + 1));
  }
}

export class Client {
  #messages = [];
  #waiting = [];

  constructor(url, options) {
    this.socket = new WebSocket(url, options);
    this.pings = 0;
    this.socket.on('ping', () => this.pings++);
    this.socket.on('upgrade', ({ headers }) => {
      // What was agreed to, with its parameters; the socket itself tells names only.
      this.extensions = headers['sec-websocket-extensions'];
    });
    this.socket.on('message', (data, isBinary) => {
      const message = isBinary ? data : data.toString();
      const waiting = this.#waiting.shift();
      if (waiting) waiting.resolve(message);
      else this.#messages.push(message);
    });
    // An error is followed by the end, which is what tests look at.
    this.socket.on('error', () => {});
    this.closed = once(this.socket, 'close').then(([code, reason]) => ({ code, reason: reason.toString() }));
    this.closed.then(({ code, reason }) => {
      for (const { reject } of this.#waiting) reject(new Error(`closed with ${code} ${reason}`));
    });
  }

  // The next message: a string, or a Buffer when it was binary.
  next() {
    if (this.#messages.length > 0) return Promise.resolve(this.#messages.shift());
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  close(code, reason) {
    this.socket.close(code, reason);
    return this.closed;
  }
}

// One test on each driver. Where the kernel forbids io_uring, its half is skipped with the server's own words.
export function onBothDrivers(name, flags, body) {
  for (const driver of ['io_uring', 'epoll']) {
    test(`${name} (${driver})`, async (context) => {
      let server;
      try {
        server = await Server.start(driver, ...flags);
      } catch (error) {
        if (driver === 'io_uring' && error.message.includes('cannot be used here')) {
          context.skip(error.message);
          return;
        }
        throw error;
      }
      try {
        await body(server, context);
      } finally {
        await server.stop();
      }
    });
  }
}
