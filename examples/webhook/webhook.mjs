// SPDX-License-Identifier: MIT

// Adds a task to `timewheel serve`, removes another, and receives the webhook of the first, in a second. It needs no
// packages. README.md says how to start it and what it prints.

import { createHmac, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';

const serve = process.env.SERVE_URL ?? 'http://127.0.0.1:8470';
const port = Number(process.env.PORT ?? 8480); // of the webhook's url in serve.json
const { SHOP_TOKEN: token, MAIL_SECRET: secret } = process.env;
if (!token || !secret) throw new Error('SHOP_TOKEN or MAIL_SECRET is not set');
const tolerance = 300; // seconds that the signature may be old, or the clocks may differ
const longest = 1 << 20; // bytes in a payload of a task
const signed = ['kind', 'key', 'token', 'attempt', 'fence', 'due']; // in this order

// call sends a request for the task with the key, and returns the status.
async function call(method, key, task) {
  const response = await fetch(`${serve}/tasks/${encodeURIComponent(key)}`, {
    method,
    headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(task),
    signal: AbortSignal.timeout(10_000),
  });
  if (!response.ok) throw new Error(`${method} ${key}: ${response.status} ${await response.text()}`);
  return response.status;
}

// verify reports whether the request was signed with the secret within the last five minutes.
function verify(headers, body) {
  const parts = (headers['timewheel-signature'] ?? '').split(',').map((part) => part.split('='));
  const signedAt = parts.find(([name]) => name === 't')?.[1] ?? '';
  const values = signed.map((name) => headers[`timewheel-${name}`]);
  if (!/^\d{1,12}$/.test(signedAt) || values.includes(undefined)) return false;
  if (Math.abs(Date.now() / 1000 - Number(signedAt)) > tolerance) return false;
  const lines = [signedAt, ...values].map((value) => value + '\n').join('');
  const want = createHmac('sha256', secret).update(lines).update(body).digest();
  // There are two signatures while the secret is being replaced. The comparison takes the same time for any bytes.
  return parts.some(([name, hex]) => {
    const got = Buffer.from(hex ?? '', 'hex');
    return name === 'v1' && got.length === want.length && timingSafeEqual(got, want);
  });
}

const done = new Set(); // tokens of finished runs; in production a table, written in the transaction of the work

// receive returns the status that answers the request.
async function receive(request) {
  const chunks = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    if (size > longest) return 413;
    chunks.push(chunk);
  }
  const body = Buffer.concat(chunks);
  if (!verify(request.headers, body)) {
    console.log('refused: the signature is wrong or old');
    return 401;
  }
  const run = request.headers['timewheel-token']; // the same for each attempt of a run
  if (!done.has(run)) {
    const key = decodeURIComponent(request.headers['timewheel-key']);
    console.log(`${key}: mail to ${JSON.parse(body).to}`);
    done.add(run);
  }
  return 200; // after the work: any other status makes serve call again
}

const server = createServer(async (request, response) => {
  const status = await receive(request).catch(() => 400);
  response.writeHead(status, { 'Content-Length': 0, Connection: 'close' }).end();
  if (done.size > 0) server.close(); // the program ends when the response is sent
});
server.listen(port, '127.0.0.1');
await once(server, 'listening');
console.log('listening on port', server.address().port);
const mail = { kind: 'mail', delay: '1s', payload: { to: 'ada@example.com' } };
console.log('add order:1:', await call('PUT', 'order:1', mail));
console.log('add order:2:', await call('PUT', 'order:2', { kind: 'mail', delay: '1h' }));
console.log('remove order:2:', await call('DELETE', 'order:2'));
