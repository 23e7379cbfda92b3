#!/usr/bin/env python3
"""What it costs that somebody watches the engine: answers with and without a client of /engine/events, in turns.

  engine_events.py [--moeflux PROGRAM] [--rounds N] [--tokens N] MODEL [OPTIONS OF serve ...]

Says the time of a token and the processor time of a token of both, as medians of the rounds: of the threads that compute, and of
the others, which write the events. Where other programs use the machine, the latter is what can be measured well.
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
    """Of each thread; none ends meanwhile."""
    seconds = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            seconds[thread] = int(file.read().split()[0]) / 1e9
    return seconds


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
    parser.add_argument("options", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    process, port = server(given.moeflux, given.model, given.options)
    try:
        answer(port, given.tokens)  # what is read first is read now
        alone, watched = [], []  # seconds of a token: by the clock, of computing threads, of the others
        n_events = n_bytes = seconds = 0
        for round_ in range(2 * given.rounds):
            watcher = Watcher(port) if (round_ + round_ // 2) % 2 else None
            time.sleep(0.3)
            before, begin, first = cpu_seconds(process.pid), time.monotonic(), watcher and (watcher.n_events, watcher.n_bytes)
            decode = answer(port, given.tokens)
            used = {thread: end - before.get(thread, 0) for thread, end in cpu_seconds(process.pid).items()}
            computing = sum(each for each in used.values() if each > max(used.values()) / 4)
            run = [each / given.tokens for each in (decode, computing, sum(used.values()) - computing)]
            (watched if watcher else alone).append(run)
            if watcher:
                n_events, n_bytes = n_events + watcher.n_events - first[0], n_bytes + watcher.n_bytes - first[1]
                seconds += time.monotonic() - begin
                watcher.close()
        for name, runs in (("alone", alone), ("watched", watched)):
            clock, computing, others = (1e3 * statistics.median(column) for column in zip(*runs))
            print(f"{name:8} {clock:8.3f} ms a token; processors: {computing:8.3f} ms to compute, {others:.4f} ms besides")
        more = (statistics.mean(run[2] for run in watched) - statistics.mean(run[2] for run in alone)) * given.tokens * given.rounds / n_events
        print(f"events: {n_events / seconds:.1f} and {n_bytes / seconds / 1e3:.1f} KB a second, {1e3 * more:.3f} ms of processors for each: "
              f"{100 * more * n_events / seconds:.2f} % of one")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


main()
