// Certificates of tests: an authority that no machine trusts, and what it signs, with the command openssl.

import { execFileSync } from 'node:child_process';
import { createHash, X509Certificate } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const KEYS = {
  'P-256': ['ec', 'ec_paramgen_curve:P-256'],
  'P-384': ['ec', 'ec_paramgen_curve:P-384'],
  RSA: ['rsa', 'rsa_keygen_bits:2048'],
};

// All that these certificates have stands in the command lines, and nothing in a machine's configuration.
const CONFIG = '[req]\ndistinguished_name = subject\n[subject]\n';

export class Authority {
  #files;
  #issued = 0;

  // An authority with the name of another one would be taken for it, until its signatures do not fit.
  constructor(name = 'tests of Myriad') {
    this.folder = mkdtempSync(join(tmpdir(), 'myriad-certificates-'));
    process.on('exit', () => rmSync(this.folder, { recursive: true, force: true }));
    writeFileSync(join(this.folder, 'openssl.cnf'), CONFIG);
    const extensions = ['basicConstraints=critical,CA:TRUE', 'keyUsage=critical,keyCertSign,cRLSign'];
    this.#files = this.#make('authority', 'P-256', extensions, name);
    this.file = this.#files.certificate;
    this.pem = readFileSync(this.file, 'utf8');
  }

  // A certificate with these names (`DNS:` or `IP:` before each), and its key: in files, and as `cert` and `key` of Node.js.
  issue(names = ['DNS:localhost', 'IP:127.0.0.1'], kind = 'P-256') {
    const subject = names[0].replace(/^\w+:/, '');
    const extensions = [
      `subjectAltName=${names.join(',')}`,
      'basicConstraints=critical,CA:FALSE',
      'keyUsage=critical,digitalSignature',
      'extendedKeyUsage=serverAuth,clientAuth',
    ];
    const signer = ['-CA', this.#files.certificate, '-CAkey', this.#files.key];
    const files = this.#make(`${++this.#issued}`, kind, extensions, subject, signer);
    return { files, cert: readFileSync(files.certificate, 'utf8'), key: readFileSync(files.key, 'utf8') };
  }

  #make(name, kind, extensions, subject, signer = []) {
    const [certificate, key] = ['pem', 'key'].map((ending) => join(this.folder, `${name}.${ending}`));
    const [algorithm, option] = KEYS[kind];
    execFileSync('openssl', [
      'req', '-x509', '-config', join(this.folder, 'openssl.cnf'), '-newkey', algorithm, '-pkeyopt', option, '-nodes', '-days', '30',
      '-subj', `/CN=${subject}`, '-out', certificate, '-keyout', key, ...signer,
      ...extensions.flatMap((extension) => ['-addext', extension]),
    ], { stdio: 'pipe' });
    return { certificate, key };
  }
}

let ours;

// The authority that clients of the tests believe.
export const authority = () => (ours ??= new Authority());

// Flags that have a server speak TLS with this certificate.
export const using = ({ files }) => ['--tls-certificate', files.certificate, '--tls-key', files.key];

// Flags that have a server speak TLS as localhost.
export const withTls = (...flags) => [...using(authority().issue()), ...flags];

// What Chromium calls a certificate whose key it takes whoever has signed it.
export function publicKeyHash({ cert }) {
  const spki = new X509Certificate(cert).publicKey.export({ type: 'spki', format: 'der' });
  return createHash('sha256').update(spki).digest('base64');
}
