# SPDX-License-Identifier: MIT
"""Uses the client, and prints what TestClients expects. It begins with the port of its receiver, and reads the URL of the service."""

import http.server
import queue
import threading

import timewheel

SECRET = "a secret of the tests"
webhooks = queue.Queue()


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        refused = 0
        for secrets, text, now in (("another secret", body, None), (SECRET, body + b" ", None), (SECRET, body, 1)):
            try:
                timewheel.verify(secrets, self.headers, text, now=now)
            except timewheel.WrongSignature:
                refused += 1
        identifier = timewheel.verify(["another secret", SECRET], self.headers, body)
        webhooks.put((self.headers["Timewheel-Key"], body.decode(), refused, identifier != ""))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
client = timewheel.Client(input())

answer = client.put("a/1", "k", payload={"n": 1})
print("put", answer["repeated"])
key, body, refused, verified = webhooks.get(timeout=30)
print("webhook", key, body, refused, verified)
answer = client.put("b", "k", delay="1h", idempotency_key=False)
print("put", answer["repeated"], answer["replaced"], answer["task"]["state"])
print("get", client.get("b")["key"], client.get("none"))
print("reschedule", client.reschedule("b", delay="2h"), client.reschedule("none", at="2100-01-01T00:00:00Z"))
print("tasks", [task["key"] for task in client.tasks(prefix="b", limit=1)])
print("count", client.bulk("count", kind="k"))
print("schedule", client.schedule("s:", 1, [{"key": "s:a", "kind": "k", "cron": "@daily"}])["unchanged"])
for key, kind, only_new in (("b", "k", True), ("c", "none", False)):
    try:
        client.put(key, kind, only_new=only_new)
    except timewheel.Error as e:
        print("error", e.status, e.problem.get("errors", [{}])[0].get("field"))
try:
    client.put("e", "k", idempotency_key="")
except timewheel.Error as e:
    print("error", e.status, e.problem.get("errors", [{}])[0].get("field"))
try:
    client.get("full")
except timewheel.Error as e:
    print("full", e.status, e.retry_after)
client.put("..", "k", delay="1h")
print("dots", client.get("..")["key"] == ".." and client.remove(".."))
print("remove", client.remove("b"), client.remove("b"))
print("webhooks", webhooks.qsize())
