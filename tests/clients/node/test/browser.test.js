// The browser that tests bring with them, when several of them unpack it at the same time.

import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { publish } from '../browser.js';

test('of two folders with one name the first stays, and nothing is left of the other', () => {
  const room = mkdtempSync(join(tmpdir(), 'browser-'));
  try {
    for (const name of ['first', 'second']) {
      mkdirSync(join(room, name));
      writeFileSync(join(room, name, 'chromium'), name);
      publish(join(room, name), join(room, 'final'));
    }
    assert.deepEqual(readdirSync(room), ['final']);
    assert.equal(readFileSync(join(room, 'final', 'chromium'), 'utf8'), 'first');
    assert.throws(() => publish(join(room, 'missing'), join(room, 'other')), { code: 'ENOENT' });
  } finally {
    rmSync(room, { recursive: true });
  }
});
