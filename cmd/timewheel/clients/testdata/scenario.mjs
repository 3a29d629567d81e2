// SPDX-License-Identifier: MIT

// Uses the client, and prints what TestClients expects. It begins with the port of its receiver, and reads the URL of the service.

import { once } from "node:events";
import { createServer } from "node:http";
import { createInterface } from "node:readline/promises";

import { Client, ServiceError, verify, WrongSignature } from "../timewheel.mjs";

const secret = "a secret of the tests";
const webhooks = [];
let arrived = () => {};

const server = createServer(async (req, res) => {
  const chunks = [];
  for await (const chunk of req) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  let refused = 0;
  for (const [secrets, text, now] of [["another secret", body], [secret, body + " "], [secret, body, 1]]) {
    try {
      verify(secrets, req.headers, text, { now });
    } catch (e) {
      if (e instanceof WrongSignature) refused++;
    }
  }
  const id = verify(["another secret", secret], req.headers, body);
  webhooks.push([req.headers["timewheel-key"], body.toString(), refused, id !== ""]);
  arrived();
  res.end();
});
server.listen(0, "127.0.0.1");
await once(server, "listening");
console.log(server.address().port);
const input = createInterface({ input: process.stdin });
const [url] = await once(input, "line");
const client = new Client(url);

// say prints values as Python does.
const say = (...values) => console.log(...values.map((v) => ({ true: "True", false: "False", null: "None", undefined: "None" })[v] ?? v));

let answer = await client.put("a/1", "k", { payload: { n: 1 } });
say("put", answer.repeated);
if (webhooks.length === 0) await new Promise((done) => (arrived = done));
say("webhook", ...webhooks.shift());
answer = await client.put("b", "k", { delay: "1h" }, { idempotencyKey: false });
say("put", answer.repeated, answer.replaced, answer.task.state);
say("get", (await client.get("b")).key, await client.get("none"));
say("reschedule", await client.reschedule("b", { delay: "2h" }), await client.reschedule("none", { at: "2100-01-01T00:00:00Z" }));
const keys = [];
for await (const task of client.tasks({ prefix: "b", limit: 1 })) keys.push(`'${task.key}'`);
say("tasks", `[${keys.join(", ")}]`);
say("count", await client.bulk("count", { kind: "k" }));
say("schedule", (await client.schedule("s:", 1, [{ key: "s:a", kind: "k", cron: "@daily" }])).unchanged);
for (const [key, kind, onlyNew] of [["b", "k", true], ["c", "none", false]]) {
  try {
    await client.put(key, kind, {}, { onlyNew });
  } catch (e) {
    if (e instanceof ServiceError) say("error", e.status, e.problem.errors?.[0].field);
  }
}
try {
  await client.put("e", "k", {}, { idempotencyKey: "" });
} catch (e) {
  if (e instanceof ServiceError) say("error", e.status, e.problem.errors?.[0].field);
}
try {
  await client.get("full");
} catch (e) {
  if (e instanceof ServiceError) say("full", e.status, e.retryAfter);
}
say("dots", await client.remove("..").catch((e) => e instanceof TypeError));
say("remove", await client.remove("b"), await client.remove("b"));
say("webhooks", webhooks.length);
input.close();
server.close();
