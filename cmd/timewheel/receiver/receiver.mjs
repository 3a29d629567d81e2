// SPDX-License-Identifier: MIT

// A receiver of webhooks of `timewheel serve`, on node without packages. It checks the signature, and does the work of
// each token once.
//
//	SECRET=... PORT=8480 node receiver.mjs

import { createHmac, timingSafeEqual } from 'node:crypto';
import { createServer } from 'node:http';
import { fileURLToPath } from 'node:url';

const tolerance = 300; // seconds between the clocks of the two machines, and of the way
const mostBody = 1 << 20;

// The signed headers, in order. Each is followed by a line feed, and so is the time before them.
const signed = ['kind', 'key', 'token', 'attempt', 'fence', 'due'].map((name) => 'timewheel-' + name);

// verify returns why a request is refused, or '' if one of its signatures is right and recent.
export function verify(secret, headers, body, now = Date.now() / 1000) {
  const header = headers['timewheel-signature'] ?? '';
  const parts = header.split(',').map((part) => part.split('='));
  const time = parts.find(([name]) => name === 't')?.[1] ?? '';
  if (!/^\d{1,12}$/.test(time)) return 'there is no signature';
  if (Math.abs(now - Number(time)) > tolerance) return 'the signature is too old, or the clocks differ';
  if (signed.some((name) => headers[name] === undefined)) return 'a signed header is missing';
  const mac = createHmac('sha256', secret);
  for (const line of [time, ...signed.map((name) => headers[name])]) mac.update(line + '\n');
  const want = mac.update(body).digest();
  const right = parts.some(([name, hex]) => {
    const got = name === 'v1' ? Buffer.from(hex ?? '', 'hex') : Buffer.alloc(0);
    return got.length === want.length && timingSafeEqual(got, want);
  });
  return right ? '' : 'the signature is wrong';
}

// receiver returns a server that calls work(key, body) once for each token, and answers when the work has ended. runs
// keeps the promise of the work of each token, until the process ends. In production, work also writes the token into a
// table of its database, in the same transaction, and does nothing if it is already there.
export function receiver(secret, work, runs = new Map()) {
  return createServer((request, response) => {
    const parts = [];
    let size = 0;
    request.on('data', (part) => {
      size += part.length;
      if (size > mostBody) request.destroy();
      else parts.push(part);
    });
    request.on('end', async () => {
      const answer = (status, text) => response.writeHead(status, { 'Content-Type': 'text/plain' }).end(text + '\n');
      const body = Buffer.concat(parts);
      const refused = verify(secret, request.headers, body);
      if (refused !== '') return answer(401, refused);
      const token = request.headers['timewheel-token'];
      const again = runs.has(token);
      if (!again) runs.set(token, (async () => work(decodeURIComponent(request.headers['timewheel-key']), body))());
      try {
        await runs.get(token);
      } catch (error) {
        runs.delete(token); // it is called again
        return answer(500, String(error));
      }
      answer(200, again ? 'done before' : 'done');
    });
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const secret = process.env.SECRET ?? '';
  if (secret.length < 16) {
    console.error('SECRET has fewer than 16 characters');
    process.exit(2);
  }
  const server = receiver(secret, (key, body) => console.log(`work ${key} ${body}`));
  server.listen(Number(process.env.PORT ?? 8480), '127.0.0.1', () => console.log(`listening ${server.address().port}`));
}
