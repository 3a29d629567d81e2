// SPDX-License-Identifier: MIT

// A client of `timewheel serve`, and a verifier of its webhooks. Copy this file: it needs Node 18 and no package.
//
//   const client = new Client("http://127.0.0.1:8470", token);
//   await client.put("order:42", "mail", { delay: "30m", payload: { to: "ada@example.com" } });
//   await client.remove("order:42");
//
// A request without an answer is repeated, and so is one that is answered with 429, 502, 503 or 504, after the time of its Retry-After
// if that is at most a minute. A put has an idempotency key, so its repetition has no effect if the first one had one.

import { createHmac, randomUUID, timingSafeEqual } from "node:crypto";

/** An answer of the service that is an error. It has the status, the problem document, and the seconds of Retry-After, or 0. */
export class ServiceError extends Error {
  constructor(status, problem, retryAfter = 0) {
    super(problem.detail ?? `status ${status}`);
    this.status = status;
    this.problem = problem;
    this.retryAfter = retryAfter;
  }
}

/** A request that the service has not signed, or that is older than five minutes. */
export class WrongSignature extends Error {}

const quoted = encodeURIComponent;
const again = new Set([429, 502, 503, 504]);

/** Adds, changes and removes tasks. */
export class Client {
  /** attempts is how often a request is sent at most, and timeout how many seconds each may take. */
  constructor(url, token, { attempts = 6, timeout = 70 } = {}) {
    this.url = url.replace(/\/+$/, "");
    this.token = token;
    this.attempts = attempts;
    this.timeout = timeout;
  }

  /**
   * Adds a task, or replaces the one with the key. Returns the answer, with task, replaced and repeated. With onlyNew it throws a
   * ServiceError with the status 412 if there is one. The fields of the task are those of the service: delay, at, cron, payload and
   * others. Each call has an idempotency key of its own, unless one is given. false is none: kinds that other nodes run have none.
   */
  put(key, kind, task = {}, { onlyNew = false, idempotencyKey } = {}) {
    const headers = onlyNew ? { "If-None-Match": "*" } : {};
    if (idempotencyKey !== false) headers["Idempotency-Key"] = idempotencyKey ?? randomUUID();
    return this.#send("PUT", `/tasks/${quoted(key)}`, { kind, ...task }, headers);
  }

  /** Returns a task, or null. */
  get(key) {
    return this.#orNone("GET", `/tasks/${quoted(key)}`, null);
  }

  /** Removes a task, and returns whether there was one. No run of it starts afterwards. */
  remove(key) {
    return this.#orNone("DELETE", `/tasks/${quoted(key)}`, false, true);
  }

  /** Moves the next run to { delay } or { at }, and returns whether there was a task. */
  reschedule(key, to) {
    return this.#orNone("POST", `/tasks/${quoted(key)}/reschedule`, false, true, to);
  }

  /** Yields the tasks that match { prefix, kind, state, group }, without their payloads. */
  async *tasks(query = {}) {
    for (let after = {}; ; ) {
      const page = await this.#send("GET", `/tasks?${new URLSearchParams({ ...query, ...after })}`);
      yield* page.tasks;
      if (page.next === undefined) return;
      after = { after: page.next };
    }
  }

  /** Applies unpark, run, pause, resume, cancel, remove or count to the tasks that match, and returns their number. */
  async bulk(action, query = {}) {
    for (let n = 0, after = {}; ; ) {
      const answer = await this.#send("POST", `/tasks/${action}`, { ...query, ...after });
      n += answer.tasks;
      if (answer.next === undefined) return n;
      after = { after: answer.next };
    }
  }

  /** Declares the repeating tasks under a prefix, and returns the numbers of changes. */
  schedule(prefix, version, tasks) {
    return this.#send("PUT", `/schedules/${quoted(prefix)}`, { version, tasks });
  }

  async #orNone(method, path, none, found, body) {
    try {
      const answer = await this.#send(method, path, body);
      return found ?? answer;
    } catch (e) {
      if (e instanceof ServiceError && e.status === 404) return none;
      throw e;
    }
  }

  async #send(method, path, body, headers = {}) {
    if (/\/\.\.?(\/|$)/.test(path)) throw new TypeError("fetch cannot send the keys . and .., not even percent-encoded: use a batch");
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    for (let attempt = 1; ; attempt++) {
      let wait = 100 * 2 ** attempt * (0.5 + Math.random() / 2);
      let response, text;
      try {
        const signal = AbortSignal.timeout(this.timeout * 1000);
        response = await fetch(this.url + path, { method, headers, body: body && JSON.stringify(body), signal });
        text = await response.text();
      } catch (e) {
        if (attempt === this.attempts) throw e;
      }
      if (text !== undefined) {
        if (response.ok) return text ? JSON.parse(text) : null;
        const after = Number(response.headers.get("Retry-After")) || 0;
        if (!again.has(response.status) || attempt === this.attempts || after > 60) {
          throw new ServiceError(response.status, problemOf(text), after);
        }
        wait = Math.max(wait, after * 1000);
      }
      await new Promise((done) => setTimeout(done, wait));
    }
  }
}

/**
 * Returns the identifier of a webhook: it is the same for each attempt of a run, so keep those of finished work. secrets is one, or
 * several while one is replaced. headers is an object or Headers, and body the Buffer or text of the request. Throws a WrongSignature if
 * none of the secrets has signed it, or if it is more than tolerance seconds old.
 */
export function verify(secrets, headers, body, { tolerance = 300, now = Date.now() / 1000 } = {}) {
  const found = {};
  for (const [name, value] of headers instanceof Headers ? headers : Object.entries(headers)) found[name.toLowerCase()] = String(value);
  const id = found["webhook-id"], at = found["webhook-timestamp"], signatures = found["webhook-signature"];
  if (!id || !/^\d+$/.test(at ?? "") || !signatures) throw new WrongSignature("the headers are missing or malformed");
  if (Math.abs(now - Number(at)) > tolerance) throw new WrongSignature("the request is too old, or the clock is wrong");
  const given = signatures.split(" ").filter((one) => one.startsWith("v1,")).map((one) => Buffer.from(one.slice(3), "base64"));
  for (const secret of [secrets].flat()) {
    const key = secret.startsWith("whsec_") ? Buffer.from(secret.slice(6), "base64") : Buffer.from(secret);
    const want = createHmac("sha256", key).update(`${id}.${at}.`).update(body).digest();
    if (given.some((one) => one.length === want.length && timingSafeEqual(one, want))) return id;
  }
  throw new WrongSignature("no secret has signed the request");
}

function problemOf(text) {
  try {
    const problem = JSON.parse(text);
    if (problem !== null && typeof problem === "object") return problem;
  } catch {
    // it is not from the service
  }
  return { detail: text.slice(0, 200) };
}
