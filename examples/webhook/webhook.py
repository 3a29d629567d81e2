# SPDX-License-Identifier: MIT
"""Adds a task to `timewheel serve`, removes another, and receives the webhook of the first, in a second.

It needs no packages. README.md says how to start it and what it prints.
"""

import hashlib
import hmac
import http.server
import json
import os
import re
import signal
import time
import urllib.parse
import urllib.request

SERVE = os.environ.get("SERVE_URL", "http://127.0.0.1:8470")
PORT = int(os.environ.get("PORT", "8480"))  # of the webhook's url in serve.json
TOKEN, SECRET = os.environ["SHOP_TOKEN"], os.environ["MAIL_SECRET"]
TOLERANCE = 300  # seconds that the signature may be old, or the clocks may differ
LONGEST = 1 << 20  # bytes in a payload of a task
SIGNED = ["Kind", "Key", "Token", "Attempt", "Fence", "Due"]  # in this order


def call(method, key, task=None):
    """Sends a request for the task with the key, and returns the status. An error status is an exception."""
    url = SERVE + "/tasks/" + urllib.parse.quote(key, safe="")
    headers = {"Authorization": "Bearer " + TOKEN, "Content-Type": "application/json"}
    data = None if task is None else json.dumps(task).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=10) as response:
        return response.status


def verify(headers, body):
    """Reports whether the request was signed with the secret within the last five minutes."""
    parts = [part.partition("=")[::2] for part in headers.get("Timewheel-Signature", "").split(",")]
    signed_at = dict(parts).get("t", "")
    values = [headers.get("Timewheel-" + name) for name in SIGNED]
    if not re.fullmatch("[0-9]{1,12}", signed_at) or None in values or abs(time.time() - int(signed_at)) > TOLERANCE:
        return False
    lines = "".join(value + "\n" for value in [signed_at, *values])
    want = hmac.new(SECRET.encode(), lines.encode() + body, hashlib.sha256).hexdigest()
    # There are two signatures while the secret is being replaced. The comparison takes the same time for any text.
    return any(name == "v1" and hmac.compare_digest(got.encode(), want.encode()) for name, got in parts)


class Webhook(http.server.BaseHTTPRequestHandler):
    timeout = 10  # seconds of a caller's silence
    done = set()  # tokens of finished runs; in production a table, written in the transaction of the work

    def do_POST(self):
        length = int(self.headers.get("Content-Length", "0"))
        if not 0 <= length <= LONGEST:
            return self.answer(413)
        body = self.rfile.read(length)
        if not verify(self.headers, body):
            print("refused: the signature is wrong or old", flush=True)
            return self.answer(401)
        token = self.headers["Timewheel-Token"]  # the same for each attempt of a run
        if token not in Webhook.done:
            key = urllib.parse.unquote(self.headers["Timewheel-Key"])
            print(f"{key}: mail to {json.loads(body)['to']}", flush=True)
            Webhook.done.add(token)
        self.answer(200)  # after the work: any other status makes serve call again

    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


def main():
    mail = {"kind": "mail", "delay": "1s", "payload": {"to": "ada@example.com"}}
    with http.server.HTTPServer(("127.0.0.1", PORT), Webhook) as server:
        print("listening on port", server.server_port, flush=True)
        print("add order:1:", call("PUT", "order:1", mail))
        print("add order:2:", call("PUT", "order:2", {"kind": "mail", "delay": "1h"}))
        print("remove order:2:", call("DELETE", "order:2"), flush=True)
        while not Webhook.done:
            server.handle_request()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the program without a traceback
    main()
