// Makes tokens (JWT, RFC 7519) as an application would, with the cryptography of Node.js.

import { createHmac, generateKeyPairSync, sign } from 'node:crypto';

const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');

function signed(header, claims, signature) {
  const text = `${part({ typ: 'JWT', ...header })}.${part(claims)}`;
  return `${text}.${signature(Buffer.from(text)).toString('base64url')}`;
}

// A token signed by HMAC with SHA-256.
export function hmacToken(secret, claims) {
  return signed({ alg: 'HS256' }, claims, (text) => createHmac('sha256', secret).update(text).digest());
}

// Seconds since 1970, so many from now.
export const inSeconds = (seconds) => Date.now() / 1000 + seconds;

// A pair of keys for an algorithm: the public one as PEM, and `token(claims)`.
export function keyPair(algorithm) {
  const kinds = {
    RS256: ['rsa', { modulusLength: 2048 }, 'sha256'],
    ES256: ['ec', { namedCurve: 'P-256' }, 'sha256'],
    EdDSA: ['ed25519', {}, null],
  };
  const [kind, options, hash] = kinds[algorithm];
  const { publicKey, privateKey } = generateKeyPairSync(kind, options);
  const key = { key: privateKey, dsaEncoding: 'ieee-p1363' };
  return {
    pem: publicKey.export({ type: 'spki', format: 'pem' }),
    token: (claims) => signed({ alg: algorithm }, claims, (text) => sign(hash, text, key)),
  };
}
