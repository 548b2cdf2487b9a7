"""Starts the real binary on a free port, and talks to it without a client library."""
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time

BINARY = os.environ.get("ASSAY_BINARY", "build/dev/server/assay")
START_SECONDS = 120
DUMMY = ("--load-format", "dummy", "--kv-cache-memory", "128MiB")  # for write_random_model


def clean_environment(**more):
    """Without ASSAY_ variables of whoever runs the tests: the server would read them."""
    return {**{key: value for key, value in os.environ.items() if not key.startswith("ASSAY_")}, **more}


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json()["error"]


class RunningServer:
    def __init__(self, model, *flags, environment=None, wait=True):
        self.lines = []
        without_grpc = [] if "--grpc-port" in flags else ["--grpc-port", "0"]  # servers of one test run side by side
        self.process = subprocess.Popen([BINARY, "serve", str(model), "--port", "0", *without_grpc, *map(str, flags)],
                                        stderr=subprocess.PIPE, text=True, env=clean_environment(**(environment or {})))
        self._port = None
        self._listening = threading.Event()
        self._ready = threading.Event()
        threading.Thread(target=self._read_log, daemon=True).start()
        self.tls = "--ssl-certfile" in flags
        if not self._listening.wait(START_SECONDS) or self._port is None:
            raise RuntimeError("the server did not listen:\n" + self.log)
        # A log that has ended without the word is a process that is ending, whether or not it is gone yet.
        if wait and not (self._ready.wait(START_SECONDS) and " ready " in self.log):
            raise RuntimeError("the server did not become ready:\n" + self.log)

    def _read_log(self):
        for line in self.process.stderr:
            self.lines.append(line)
            match = re.search(r" listening .*port=(\d+)", line)
            if match:
                self._port = int(match.group(1))
                self._listening.set()
            if " ready " in line:
                self._ready.set()
        self._listening.set()
        self._ready.set()

    @property
    def log(self):
        return "".join(self.lines)

    @property
    def port(self):
        return self._port

    @property
    def url(self):
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def request(self, method, path, body=None, headers=None, timeout=120):
        if self.tls:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=ssl._create_unverified_context())
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        data = json.dumps(body) if isinstance(body, (dict, list)) else body
        connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        reply = Reply(response.status, response.headers, response.read())
        connection.close()
        return reply

    def get(self, path, **kwargs):
        return self.request("GET", path, **kwargs)

    def post(self, path, body, **kwargs):
        return self.request("POST", path, body, **kwargs)

    def complete(self, prompt, **fields):
        """The first choice of /v1/completions, greedy unless told otherwise."""
        reply = self.post("/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 64, **fields})
        assert reply.status == 200, reply.body
        return reply.json()["choices"][0]

    def events(self, path, body, headers=None):
        """The `data:` payloads of a stream: parsed JSON, or the text [DONE]."""
        reply = self.post(path, {**body, "stream": True}, headers=headers)
        assert reply.status == 200, reply.body
        assert reply.headers["Content-Type"].startswith("text/event-stream")
        events = []
        for block in reply.body.decode().split("\n\n"):
            if block.startswith("data: "):
                events.append(block[6:] if block == "data: [DONE]" else json.loads(block[6:]))
        return events

    def metric(self, name, **labels):
        """The sum of the samples of one name whose labels include these."""
        total = 0.0
        for line in self.get("/metrics").body.decode().splitlines():
            match = re.match(r"([^{ ]+)(?:\{(.*)\})? (\S+)$", line)
            if match and match.group(1) == name and all(f'{key}="{value}"' in (match.group(2) or "") for key, value in labels.items()):
                total += float(match.group(3))
        return total

    def idle(self):
        return self.metric("assay_num_requests_running") == 0 and self.metric("assay_num_requests_waiting") == 0 \
            and self.metric("assay_kv_pages", state="in_use") == 0

    def assert_alive(self):
        """The case list's "alive": a plain request works, health is 200, gauges return to 0."""
        assert self.post("/v1/completions", {"prompt": "A", "max_tokens": 1}).status == 200
        assert self.get("/health").status == 200
        eventually(self.idle)

    def stop(self, signal_number=signal.SIGTERM, timeout=60):
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        return self.process.wait(timeout)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def eventually(condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.05)
    assert condition(), "did not come true in time"
