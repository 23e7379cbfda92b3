#!/usr/bin/env python3
"""What it costs that somebody watches the engine: answers with and without a client of /engine/events, in turns.

  engine_events.py MODEL [--moeflux PROGRAM] [--rounds N] [--tokens N] [-- OPTIONS OF serve ...]

Says the time of a token and the processor time of a token (of all threads of the server) of both, as medians of the
rounds, and how many events and bytes of them came. Where other programs use the machine, processor time is the better measure.
"""

import argparse
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import threading
import time


def server(moeflux, model, options):
    process = subprocess.Popen([moeflux, "serve", model, "--port", "0", "--prefix-store", "off", *options],
                               stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    port = None
    for line in process.stderr:
        if match := re.search(r"listening on http://127.0.0.1:(\d+)", line):
            port = int(match[1])
        if "ready:" in line:
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, port
        if "error" in line:
            raise SystemExit(line)
    raise SystemExit("the server did not start")


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Watcher:
    """Reads events until it is closed."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        self.connection.request("GET", "/engine/events")
        self.response = self.connection.getresponse()
        self.n_events = self.n_bytes = 0
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        try:
            for line in self.response:
                self.n_bytes += len(line)
                self.n_events += line.startswith(b"event:")
        except (OSError, ValueError, http.client.HTTPException, AttributeError):
            pass

    def close(self):
        self.connection.sock.shutdown(2)
        self.thread.join()


def answer(port, n_tokens):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    body = {"prompt": "Tell me a story.", "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    return json.load(connection.getresponse())["timings"]["predicted_ms"] / 1e3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--moeflux", default="build/release/moeflux")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("options", nargs="*")
    given = parser.parse_args()
    process, port = server(given.moeflux, given.model, given.options)
    try:
        answer(port, given.tokens)  # what is read first is read now
        alone, watched = [], []
        n_events = n_bytes = seconds = 0
        for round_ in range(2 * given.rounds):
            watcher = Watcher(port) if (round_ + round_ // 2) % 2 else None
            time.sleep(0.3)
            before, begin = cpu_seconds(process.pid), time.monotonic()
            decode = answer(port, given.tokens)
            cpu = cpu_seconds(process.pid) - before
            (watched if watcher else alone).append((decode / given.tokens, cpu / given.tokens))
            if watcher:
                n_events, n_bytes = n_events + watcher.n_events, n_bytes + watcher.n_bytes
                seconds += time.monotonic() - begin
                watcher.close()
        for name, runs in (("alone", alone), ("watched", watched)):
            print(f"{name:8} {1e3 * statistics.median(t for t, _ in runs):8.3f} ms a token, "
                  f"{1e3 * statistics.median(c for _, c in runs):8.3f} ms of processors (least {1e3 * min(c for _, c in runs):.3f})")
        for name, i in (("time", 0), ("processors", 1)):
            ratio = statistics.median(run[i] for run in watched) / statistics.median(run[i] for run in alone)
            print(f"{name}: {100 * (ratio - 1):+.2f} %")
        print(f"events: {n_events / seconds:.1f} and {n_bytes / seconds / 1e3:.1f} KB a second")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


main()
