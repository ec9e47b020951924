// The files of docs/build-a-chat.md, as a reader copies them, in headless Chromium.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { get } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import { launch } from '../browser.js';
import { Server } from '../server.js';

const page = readFileSync(new URL('../../../../docs/build-a-chat.md', import.meta.url), 'utf8');

// The file below the heading that names it.
function file(name) {
  const block = new RegExp(`^## .*\`${name}\`\\n[^]*?^\`\`\`\\w+\\n([^]*?)^\`\`\`$`, 'm').exec(page);
  assert.ok(block, `docs/build-a-chat.md has no ${name}`);
  return block[1];
}

test('the chat of the page has names that tokens prove, history, and recovery', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'build-a-chat-'));
  t.after(() => rmSync(folder, { recursive: true }));
  symlinkSync(fileURLToPath(new URL('../node_modules', import.meta.url)), join(folder, 'node_modules'));
  for (const name of ['app.mjs', 'index.html']) writeFileSync(join(folder, name), file(name));

  // The application first: the server has to know the address of its pages.
  const app = spawn(process.execPath, ['app.mjs'], { cwd: folder, env: { ...process.env, PORT: '0' }, stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => app.kill());
  const [address] = await once(createInterface({ input: app.stdout }), 'line');
  const origin = new URL(address).origin;
  const config = join(folder, 'chat.toml');
  writeFileSync(config, file('chat.toml').replace('http://127.0.0.1:3000', origin));
  const server = await Server.start('epoll', '--config', config, '--api-key', 'publishers-show-this-key');
  t.after(() => server.stop());

  const browser = await launch();
  t.after(() => browser.close());
  const open = async (user) => {
    const tab = await (await browser.newContext()).newPage();
    await tab.goto(`${origin}/?user=${user}&server=${server.address}`);
    return tab;
  };
  const lines = (tab, count) => tab.locator('#messages li').nth(count - 1).waitFor();
  const texts = (tab) => tab.locator('#messages li').allTextContents();

  const ada = await open('Ada');
  const ben = await open('Ben');
  for (const tab of [ada, ben]) await tab.locator('#here', { hasText: '2' }).waitFor();
  await ada.fill('input', 'hello <b>Ben</b>');
  await ada.click('button');
  await lines(ben, 1);

  // The line of the page that publishes as the application does.
  const curl = /^curl \S+ -H 'X-API-Key: (\S+)' -d '(.*)'$/m.exec(page);
  const answer = await fetch(`http://${server.address}/api/publish`, { method: 'POST', headers: { 'X-API-Key': curl[1] }, body: curl[2] });
  assert.equal(answer.status, 200);
  await lines(ben, 2);

  // Who comes later reads what was said.
  const eve = await open('Eve');
  await lines(eve, 2);
  for (const tab of [ada, ben, eve]) assert.deepEqual(await texts(tab), ['Ada: hello <b>Ben</b>', 'the application: hello']);

  // No request ends the application.
  const status = async (path) => {
    const request = get({ port: new URL(origin).port, path });
    const [response] = await once(request, 'response');
    response.resume();
    return response.statusCode;
  };
  assert.equal(await status('//'), 400);
  assert.equal(await status('/toString'), 404);
  rmSync(join(folder, 'index.html'));
  assert.equal(await status('/'), 500);
  assert.equal(await status('/token?user=Ada'), 200);

  // A stranger without a token is told to leave.
  const stranger = await server.connect('/connection/websocket', { origin });
  stranger.socket.send(JSON.stringify({ id: 1, connect: {} }));
  assert.equal((await stranger.closed).code, 3501);
});
