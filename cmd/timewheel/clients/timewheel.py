# SPDX-License-Identifier: MIT
"""A client of `timewheel serve`, and a verifier of its webhooks. Copy this file: it needs Python 3.9 and no package.

    client = timewheel.Client("http://127.0.0.1:8470", token)
    client.put("order:42", "mail", delay="30m", payload={"to": "ada@example.com"})
    client.remove("order:42")

A request without an answer is repeated, and so is one that is answered with 429, 502, 503 or 504, after the time of its Retry-After if
that is at most a minute. A put has an idempotency key, so its repetition has no effect if the first one had one.
"""

import base64
import hashlib
import hmac
import http.client
import json
import random
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid


class Error(Exception):
    """An answer of the service that is an error. It has the status, the problem document, and the seconds of Retry-After, or 0."""

    def __init__(self, status, problem, retry_after=0):
        super().__init__(problem.get("detail") or f"status {status}")
        self.status = status
        self.problem = problem
        self.retry_after = retry_after


class WrongSignature(Exception):
    """A request that the service has not signed, or that is older than five minutes."""


class Client:
    """Adds, changes and removes tasks. It may be used by several threads."""

    def __init__(self, url, token=None, attempts=6, timeout=70):
        """attempts is how often a request is sent at most, and timeout how many seconds each may take."""
        self.url = url.rstrip("/")
        self.token = token
        self.attempts = attempts
        self.timeout = timeout

    def put(self, key, kind, only_new=False, idempotency_key=None, **task):
        """Adds a task, or replaces the one with the key. Returns the answer, with "task", "replaced" and "repeated".

        With only_new it raises an Error with the status 412 if there is one. The fields of the task are those of the service: delay, at,
        cron, payload and others. Each call has an idempotency key of its own, unless one is given. False is none: kinds that
        other nodes run have none."""
        headers = {"If-None-Match": "*"} if only_new else {}
        if idempotency_key is not False:
            headers["Idempotency-Key"] = str(uuid.uuid4()) if idempotency_key is None else idempotency_key
        return self._send("PUT", "/tasks/" + _quoted(key), {"kind": kind, **task}, headers)

    def get(self, key):
        """Returns a task, or None."""
        return self._or_none("GET", "/tasks/" + _quoted(key), None)

    def remove(self, key):
        """Removes a task, and returns whether there was one. No run of it starts afterwards."""
        return self._or_none("DELETE", "/tasks/" + _quoted(key), False, True)

    def reschedule(self, key, delay=None, at=None):
        """Moves the next run, and returns whether there was a task."""
        body = {"delay": delay} if at is None else {"at": at}
        return self._or_none("POST", f"/tasks/{_quoted(key)}/reschedule", False, True, body)

    def tasks(self, **query):
        """Yields the tasks that match prefix, kind, state and group, without their payloads."""
        while True:
            page = self._send("GET", "/tasks?" + urllib.parse.urlencode(query))
            yield from page["tasks"]
            if "next" not in page:
                return
            query["after"] = page["next"]

    def bulk(self, action, **query):
        """Applies unpark, run, pause, resume, cancel, remove or count to the tasks that match, and returns their number."""
        n = 0
        while True:
            answer = self._send("POST", "/tasks/" + action, query)
            n += answer["tasks"]
            if "next" not in answer:
                return n
            query["after"] = answer["next"]

    def schedule(self, prefix, version, tasks):
        """Declares the repeating tasks under a prefix, and returns the numbers of changes."""
        return self._send("PUT", "/schedules/" + _quoted(prefix), {"version": version, "tasks": tasks})

    def _or_none(self, method, path, none, found=None, body=None):
        try:
            answer = self._send(method, path, body)
        except Error as e:
            if e.status == 404:
                return none
            raise
        return answer if found is None else found

    def _send(self, method, path, body=None, headers=None):
        headers = dict(headers or {})
        if self.token:
            headers["Authorization"] = "Bearer " + self.token
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        for attempt in range(1, self.attempts + 1):
            request = urllib.request.Request(self.url + path, data, headers, method=method)
            wait = 0.1 * 2**attempt * random.uniform(0.5, 1)
            try:
                with urllib.request.urlopen(request, timeout=self.timeout) as response:
                    text = response.read()
                    return json.loads(text) if text else None
            except urllib.error.HTTPError as e:
                with e:
                    problem = _problem(e.read())
                after = _seconds(e.headers.get("Retry-After"))
                if e.code not in (429, 502, 503, 504) or attempt == self.attempts or after > 60:
                    raise Error(e.code, problem, after) from None
                wait = max(wait, after)
            except (OSError, http.client.HTTPException):
                if attempt == self.attempts:
                    raise
            time.sleep(wait)


def verify(secrets, headers, body, tolerance=300, now=None):
    """Returns the identifier of a webhook: it is the same for each attempt of a run, so keep those of finished work.

    secrets is one, or several while one is replaced. headers is a mapping, and body the bytes of the request. Raises
    WrongSignature if none of the secrets has signed it, or if it is more than tolerance seconds old."""
    found = {name.lower(): value for name, value in headers.items()}
    try:
        identifier, at = found["webhook-id"], found["webhook-timestamp"]
        given = [one[3:] for one in found["webhook-signature"].split(" ") if one.startswith("v1,")]
        old = abs((time.time() if now is None else now) - int(at)) > tolerance
    except (KeyError, ValueError):
        raise WrongSignature("the headers are missing or malformed") from None
    if old:
        raise WrongSignature("the request is too old, or the clock is wrong")
    signed = f"{identifier}.{at}.".encode() + body
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        key = base64.b64decode(secret[6:]) if secret.startswith("whsec_") else secret.encode()
        want = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
        if any(hmac.compare_digest(want, one.encode()) for one in given):
            return identifier
    raise WrongSignature("no secret has signed the request")


def _quoted(key):
    text = urllib.parse.quote(key, safe="")
    return text.replace(".", "%2E") if text in (".", "..") else text


def _problem(text):
    try:
        problem = json.loads(text)
    except ValueError:
        problem = None
    return problem if isinstance(problem, dict) else {"detail": text.decode(errors="replace")[:200]}


def _seconds(text):
    return int(text) if text and text.isdecimal() else 0
