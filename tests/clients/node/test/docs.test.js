// The first lines of docs/protocol.md, as a reader copies them.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { onBothDrivers } from '../server.js';

const page = readFileSync(new URL('../../../../docs/protocol.md', import.meta.url), 'utf8');
const lines = /^```js\n(.*?)^```$/ms.exec(page)[1];

onBothDrivers('the first lines of JavaScript get what they publish', [], async (server) => {
  const code = lines.replace('127.0.0.1:8000', server.address);
  assert.notEqual(code, lines);
  const reader = spawn(process.execPath, ['-e', code], {
    cwd: fileURLToPath(new URL('..', import.meta.url)),
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  try {
    for await (const line of createInterface({ input: reader.stdout })) {
      assert.equal(line, "{ text: 'hello' }");
      return;
    }
    assert.fail('it ended without a publication');
  } finally {
    reader.kill();
  }
});
