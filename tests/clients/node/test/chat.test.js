// The page of a development server, and the chat of examples/chat that it serves, in headless Chromium.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { launch } from '../browser.js';
import { onBothDrivers } from '../server.js';
import { Wire } from '../wire.js';

async function open(browser, address, name, options = {}) {
  const page = await (await browser.newContext(options)).newPage();
  page.problems = [];
  page.on('pageerror', (error) => page.problems.push(error.message));
  await page.addInitScript((name) => localStorage.setItem('chat-name', name), name);
  await page.goto(`http://${address}/chat`);
  await page.waitForSelector('#status[data-state=connected]');
  return page;
}

async function say(page, text) {
  await page.fill('#text', text);
  await page.click('button');
}

const messages = (page) => page.locator('#messages .message').allTextContents();
const until = (page, count) => page.locator('#messages .message').nth(count - 1).waitFor();

onBothDrivers('two people chat, and one whose connection breaks misses nothing', [], async (server) => {
  const wire = await Wire.to(server.address);
  const browser = await launch();
  try {
    const ada = await open(browser, server.address, 'Ada');
    const ben = await open(browser, wire.address, 'Ben');
    await ada.locator('#count', { hasText: '2' }).waitFor();
    await ben.locator('#count', { hasText: '2' }).waitFor();
    await say(ada, 'hello');
    await until(ben, 1);
    const hostile = '<img src=x onerror="document.title = 1"><script>document.title = 1</script>';
    await say(ben, hostile);
    await until(ada, 2);

    wire.break();
    await ben.waitForSelector('#status[data-state=connecting]');
    await ada.locator('#count', { hasText: '1' }).waitFor();
    for (const text of ['one', 'two']) await say(ada, text);
    await until(ada, 4);
    wire.mend();
    await ben.waitForSelector('#status[data-state=connected]');
    await until(ben, 4);
    await ben.locator('.note', { hasText: 'nothing was missed' }).waitFor();
    await say(ben, 'back');
    await until(ada, 5);

    const expected = ['Adahello', `Ben${hostile}`, 'Adaone', 'Adatwo', 'Benback'];
    // Who comes later reads what was said.
    const eve = await open(browser, server.address, 'Eve');
    await until(eve, 5);
    for (const page of [ada, ben, eve]) {
      assert.deepEqual(await messages(page), expected);
      assert.equal(await page.title(), 'Chat on Myriad');
      assert.deepEqual(page.problems, []);
    }
    await ada.locator('#count', { hasText: '3' }).waitFor();

    await eve.fill('#room', 'no room');
    assert.equal(await eve.locator('#room:invalid').count(), 1);
    await eve.fill('#room', 'else-where');
    await eve.press('#room', 'Enter');
    await ada.locator('#count', { hasText: '2' }).waitFor();
    await say(eve, 'alone');
    await until(eve, 1);
    assert.deepEqual(await messages(eve), ['Evealone']);
    if (process.env.SCREENSHOT) await ada.screenshot({ path: process.env.SCREENSHOT });
  } finally {
    await browser.close();
    wire.end();
  }
});

onBothDrivers('history comes in pages when one scrolls up', [], async (server) => {
  for (let number = 1; number <= 80; number++) {
    await server.publish('lobby', { data: { name: 'api', text: String(number) } });
  }
  const browser = await launch();
  try {
    const page = await open(browser, server.address, 'Ada');
    await until(page, 50);
    await page.locator('#messages').evaluate((list) => { list.scrollTop = 0; });
    await until(page, 80);
    assert.deepEqual(await messages(page), Array.from({ length: 80 }, (_, index) => `api${index + 1}`));
  } finally {
    await browser.close();
  }
});

onBothDrivers('a room of 500 stays usable, on a telephone and in the dark', [], async (server) => {
  const crowd = spawn(process.env.MYRIAD, [
    'swarm', `ws://${server.address}/connection/websocket`, '--protocol', 'centrifuge-json', '--channel', 'lobby',
    '--connections', '500', '--duration', '5m', '--live', 'off',
  ], { stdio: 'ignore' });
  const browser = await launch();
  try {
    const ada = await open(browser, server.address, 'Ada', { viewport: { width: 900, height: 600 } });
    const eve = await open(browser, server.address, 'Eve', { viewport: { width: 360, height: 740 }, colorScheme: 'dark' });
    await ada.locator('#count', { hasText: '502' }).waitFor();
    const before = Date.now();
    await say(eve, 'a message that is longer than a telephone is wide');
    await until(ada, 1);
    // One's own message and name are marked, and others' are not.
    const mine = (page) => page.locator('.message.own').allTextContents();
    assert.deepEqual(await mine(eve), ['Evea message that is longer than a telephone is wide']);
    assert.deepEqual(await mine(ada), []);
    assert.equal(await ada.locator('#members .own').textContent(), 'Ada');
    await ada.locator('#members li', { hasText: 'Eve' }).waitFor();
    // The time stands beside the message, and is none of its text.
    const time = await ada.locator('.message').evaluate((item) => [item.dataset.time, Date.parse(item.title)]);
    assert.match(time[0], /\d\d:\d\d/);
    assert.ok(time[1] >= before - 1000 && time[1] <= Date.now(), time[1]);
    // Nobody's clock is believed that is no number.
    await server.publish('lobby', { data: { name: 'api', text: 'odd', time: '<b>' } });
    await until(ada, 2);
    assert.equal(await ada.locator('.message').nth(1).getAttribute('data-time'), null);

    assert.equal(await ada.locator('#members li').count(), 101);
    await ada.fill('#find', 'EVE');
    await ada.locator('#members li').nth(1).waitFor({ state: 'detached' });
    assert.deepEqual(await ada.locator('#members li').allTextContents(), ['Eve']);

    // On a telephone the messages have the screen until one asks for the members, and nothing is wider.
    assert.equal(await eve.locator('#people').getAttribute('open'), null);
    await eve.locator('#people summary').click();
    await eve.locator('#find').waitFor();
    assert.equal(await eve.evaluate(() => document.documentElement.scrollWidth), 360);
    const [dark, light] = await Promise.all([eve, ada].map((page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor)));
    assert.notEqual(dark, light);
  } finally {
    await browser.close();
    crowd.kill();
    await once(crowd, 'exit');
  }
});

onBothDrivers('a busy room keeps as many lines as one reads, and gives back the older ones', [], async (server) => {
  const browser = await launch();
  try {
    const page = await open(browser, server.address, 'Ada');
    await page.evaluate(() => {
      const lines = Array.from({ length: 700 }, (_, index) => messageLine({ data: { name: 'bot', text: `n${index}` }, offset: index + 1 }));
      lines.forEach(append);
    });
    await page.locator('.message', { hasText: 'n699' }).waitFor();
    const shown = await messages(page);
    assert.deepEqual([shown.length, shown[0]], [500, 'botn200']);
  } finally {
    await browser.close();
  }
});

onBothDrivers('the first page shows what the server does, and commands with its address', [], async (server) => {
  const browser = await launch();
  try {
    const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
    const problems = [];
    page.on('pageerror', (error) => problems.push(error.message));
    page.on('console', (message) => message.type() === 'error' && problems.push(message.text()));
    await page.goto(`http://${server.address}/`);
    const chat = page.frameLocator('iframe');
    await chat.locator('#status[data-state=connected]').waitFor();
    const figure = (name, text) => page.locator(`[data-metric=myriad_${name}]`, { hasText: text }).waitFor();
    await figure('connections', /^1$/);
    await figure('deliveries_total', /^0\/s$/);
    // What the page advises works as it stands.
    const command = await page.locator('code', { hasText: 'curl -d' }).textContent();
    assert.ok(command.includes(`http://${server.address}/api/publish`), command);
    execFileSync('sh', ['-c', command], { stdio: 'pipe' });
    await chat.locator('.message', { hasText: 'hello' }).waitFor();
    await figure('deliveries_total', /^[1-9]\d*\/s$/);
    await figure('sent_bytes_total', /^[1-9].* B\/s$/);
    await chat.locator('#name').fill('Ada');
    await chat.locator('#text').fill('hello, curl');
    await chat.locator('#text').press('Enter');
    await chat.locator('.message', { hasText: 'hello, curl' }).waitFor();
    if (process.env.SCREENSHOT) await page.screenshot({ path: process.env.SCREENSHOT });

    // On a telephone nothing is wider than the screen.
    await page.setViewportSize({ width: 360, height: 740 });
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 360, `${width} px`);
    await server.stop();
    await page.locator('#state', { hasText: 'does not answer' }).waitFor();
    const unexpected = problems.filter((problem) => !/ERR_CONNECTION|WebSocket connection/.test(problem));
    assert.deepEqual(unexpected, []);
  } finally {
    await browser.close();
  }
});

test('the SDK of the chat is that of the package', () => {
  const file = (path) => readFileSync(new URL(path, import.meta.url));
  const vendored = file('../../../../examples/chat/vendor/centrifuge-5.8.0/centrifuge.js');
  assert.ok(vendored.equals(file('../node_modules/centrifuge/dist/centrifuge.js')));
});
