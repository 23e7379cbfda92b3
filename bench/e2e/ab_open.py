#!/usr/bin/env python3
"""Two builds in turns, both kept open: where loading the model for every figure takes too long.

  bench/e2e/ab_open.py OLD_BENCH_SERVE NEW_BENCH_SERVE MODEL [--phase "NAME:OPTIONS:TESTS" ...]
                       [--minutes 5] [--rounds 3] [--log FILE] [--json FILE]

A phase opens the model with each build (bench_serve, a target of -DMOEFLUX_BUILD_BENCH=ON; a command
with arguments will do) and lets them measure in turns, the old one first in even rounds and the new
one first in odd ones. Every phase gets --rounds rounds at least and then its share of --minutes.
OPTIONS: ram=22G, threads=2, cpus=0-1, warm-up=32, context=4096. TESTS: p512 reads a prompt of so many
tokens, n48 feeds so many single ones, each with tokens of its own in every round, the same for both.
A ratio is taken within a round, new over old in seconds, so below 1 is faster; the median of the
rounds counts. Exit code 1 when one is above 1 + --tolerance. bench/e2e/ab.py starts afresh for every
figure instead. See bench/PROTOCOL.md.
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import time

PHASES = ["all cores:ram=22G:n48,p512,p4096", "2 cores:ram=22G,threads=2,cpus=0-1,warm-up=16:n24,p512",
          "6G:ram=6G:n40", "12G:ram=12G:n40"]
BUILDS = ("old", "new")


def cpu_list(text):
    cpus = set()
    for part in text.split("+"):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


class Serving:
    """A bench_serve that has loaded the model."""

    def __init__(self, command, model, options, log):
        options = dict(options)
        cpus = cpu_list(options.pop("cpus")) if "cpus" in options else None
        self.command = [*shlex.split(command), str(model)]
        for name, value in options.items():
            self.command += [f"--{name}", value]
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            preexec_fn=(lambda: os.sched_setaffinity(0, cpus)) if cpus else None)

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self.command)}: exit code {self.process.wait()}")
        return line.strip()

    def measure(self, test, seed):
        """Seconds per token, and bytes read per token."""
        print(test[0], test[1:], seed, file=self.process.stdin, flush=True)
        return [float(text) for text in self.answer().split()]

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Phase:
    def __init__(self, text):
        self.name, options, tests = text.split(":")
        self.options = [part.split("=") for part in options.split(",") if part]
        self.tests = tests.split(",")
        self.seconds = {test: {build: [] for build in BUILDS} for test in self.tests}
        self.read = {test: {build: [] for build in BUILDS} for test in self.tests}

    def run(self, commands, model, n_rounds, end, log):
        started = time.monotonic()
        serving = {build: Serving(commands[build], model, self.options, log) for build in BUILDS}
        try:
            for build in BUILDS:
                say(log, f"{self.name}, {build}: {serving[build].answer()}")
            say(log, f"{self.name}: loaded in {time.monotonic() - started:.0f} s")
            number, longest = 0, 0.0
            while number < n_rounds or time.monotonic() + longest < end:
                begun = time.monotonic()
                self.round(serving, number, log)
                longest = max(longest, time.monotonic() - begun)
                number += 1
        finally:
            for one in serving.values():
                one.close()

    def round(self, serving, number, log):
        for test in self.tests:
            for build in BUILDS if number % 2 == 0 else reversed(BUILDS):
                seconds, read = serving[build].measure(test, 1000 + number)
                self.seconds[test][build].append(seconds)
                self.read[test][build].append(read)
                say(log, f"{self.name}, round {number + 1}, {test}, {build}: {1e3 * seconds:.3f} "
                         f"ms/token, {1e-6 * read:.1f} MB/token read", quiet=True)

    def results(self):
        for test in self.tests:
            old, new = (self.seconds[test][build] for build in BUILDS)
            ratios = [b / a for a, b in zip(old, new)]
            if not ratios:
                continue
            yield {"phase": self.name, "test": test, "rounds": len(ratios),
                   "old_seconds_per_token": statistics.median(old),
                   "new_seconds_per_token": statistics.median(new),
                   "ratio": statistics.median(ratios), "lowest": min(ratios),
                   "highest": max(ratios), "fastest_ratio": min(new) / min(old),
                   "seconds": self.seconds[test], "bytes_read": self.read[test]}


def say(log, text, quiet=False):
    print(text, file=log, flush=True)
    if not quiet:
        print(text, flush=True)


def table(results):
    lines = ["| | rounds | old tok/s | new tok/s | time new/old | lowest | highest | of the fastest |",
             "|---|---|---|---|---|---|---|---|"]
    for row in results:
        lines.append(
            f"| {row['phase']}, {row['test']} | {row['rounds']} | "
            f"{1 / row['old_seconds_per_token']:.2f} | {1 / row['new_seconds_per_token']:.2f} | "
            f"{row['ratio']:.3f} | {row['lowest']:.3f} | {row['highest']:.3f} | "
            f"{row['fastest_ratio']:.3f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("model")
    parser.add_argument("--phase", action="append", default=[])
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tolerance", type=float, default=0.02)
    parser.add_argument("--log", default="/dev/null")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    commands = {"old": arguments.old, "new": arguments.new}
    phases = [Phase(text) for text in arguments.phase or PHASES]
    end = time.monotonic() + 60 * arguments.minutes
    results = []
    with open(arguments.log, "a") as log:
        for number, phase in enumerate(phases):
            share = (end - time.monotonic()) / (len(phases) - number)
            try:
                phase.run(commands, arguments.model, arguments.rounds, time.monotonic() + share, log)
            except (RuntimeError, OSError) as error:
                say(log, f"FAILED  {phase.name}: {error}")
            results += phase.results()
            say(log, "\n" + table(phase.results()) + "\n")
            if arguments.json:
                pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")
        say(log, table(results))
    n_expected = sum(len(phase.tests) for phase in phases)
    slow = [row for row in results if row["ratio"] > 1 + arguments.tolerance]
    return 1 if slow or len(results) < n_expected else 0


if __name__ == "__main__":
    sys.exit(main())
