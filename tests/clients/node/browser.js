// Headless Chromium: the one in CHROMIUM, or an installed one, or the one of an npm package.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const installedNames = ['chromium', 'chromium-browser', 'google-chrome'];

// Inside of node_modules, so that the next `npm ci` removes it: then the package may contain another version.
const packages = fileURLToPath(new URL('node_modules/', import.meta.url));
const unpacked = join(packages, '.chromium');

function pathOf(name) {
  try {
    return execFileSync('which', [name], { encoding: 'utf8' }).trim();
  } catch {
    return undefined;
  }
}

// Chromium's own configuration looks for its fonts in /tmp/fonts. Without any font it ends.
const fontsOf = (folder) => `<fontconfig><dir>${join(folder, 'fonts')}</dir><cachedir>${join(folder, 'font-cache')}</cachedir></fontconfig>\n`;

// Gives `folder` its final name. Test files run beside each other: the first of them names the folder, and the others drop theirs.
export function publish(folder, name) {
  try {
    renameSync(folder, name);
  } catch (error) {
    if (!existsSync(name)) throw error;
    rmSync(folder, { recursive: true });
  }
}

// Unpacks Chromium from @sparticuz/chromium, which does so below TMPDIR and takes what it finds there for its own. Hence a folder
// that nobody else has, and one name for it as soon as it is whole.
async function unpack() {
  if (!existsSync(unpacked)) {
    const folder = mkdtempSync(join(packages, '.chromium-'));
    const before = process.env.TMPDIR;
    process.env.TMPDIR = folder;
    try {
      const { default: bundled } = await import('@sparticuz/chromium');
      await bundled.executablePath();
    } finally {
      if (before === undefined) delete process.env.TMPDIR;
      else process.env.TMPDIR = before;
    }
    writeFileSync(join(folder, 'fonts.conf'), fontsOf(unpacked));
    publish(folder, unpacked);
  }
  return { executablePath: join(unpacked, 'chromium'), env: { ...process.env, FONTCONFIG_FILE: join(unpacked, 'fonts.conf') } };
}

// Every name below .example is on this machine: pages of several origins, of which none is taken for a local one.
const args = ['--no-sandbox', '--host-resolver-rules=MAP *.example 127.0.0.1'];

// Starts a browser, perhaps with more arguments. Without one a test that needs it fails: a test that is skipped is soon one that
// nobody runs.
export async function launch(...more) {
  const start = (options) => chromium.launch({ args: [...args, ...more], ...options });
  const named = process.env.CHROMIUM;
  if (named) return start({ executablePath: pathOf(named) ?? named });
  const installed = installedNames.map(pathOf).find(Boolean);
  const faults = [];
  for (const options of [async () => installed && { executablePath: installed }, unpack]) {
    try {
      const found = await options();
      if (found) return await start(found);
    } catch (error) {
      faults.push(error.message);
    }
  }
  const advice = 'no Chromium works: install one (apt-get install chromium), or name one in CHROMIUM';
  throw new Error([advice, ...faults].join('\n'));
}
