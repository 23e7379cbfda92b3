#!/usr/bin/env python3
"""Two builds in turns on one model: is the new one as fast as the old one?

  bench/e2e/ab.py OLD_MOEFLUX NEW_MOEFLUX MODEL [--limits 6G,12G] [--prompts 512,4096] [--rounds 5]
                  [--tokens 48] [--json FILE] [-- OPTIONS OF BENCH]

In every round and for every row, `moeflux bench` runs once with each build, the old one first in
even rounds and the new one first in odd ones. Rows: decoding with everything resident, decoding in a
memory control group of each limit (root is needed; --no-groups gives --ram instead), and reading
prompts. A ratio is taken within a round, new over old in seconds, so below 1 is faster; the median
of the rounds counts. Exit code 1 when one is above 1 + --tolerance. See bench/PROTOCOL.md.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

from group import Group


class Row:
    def __init__(self, name, arguments, limit=None):
        self.name, self.arguments, self.limit = name, arguments, limit
        self.seconds = {"old": [], "new": []}  # per token, by round
        self.peak = {"old": 0, "new": 0}

    def measure(self, build, program, model):
        group = Group(self.limit) if self.limit else None
        command = [program, "bench", model, *self.arguments, "-r", "1", "-o", "json", "-q",
                   "--no-measure", "--no-config", "--no-profile"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                   preexec_fn=group.enter if group else None)
        output = process.communicate()[0]
        if process.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit code {process.returncode}")
        result = json.loads(output)[0]
        self.seconds[build].append(result["seconds"][0] / result["n_tokens"])
        if group:
            self.peak[build] = max(self.peak[build], group.peak())
            group.remove()

    def ratios(self):
        return [new / old for old, new in zip(self.seconds["old"], self.seconds["new"])]

    def result(self):
        ratios = self.ratios()
        return {"name": self.name, "old_seconds_per_token": statistics.median(self.seconds["old"]),
                "new_seconds_per_token": statistics.median(self.seconds["new"]),
                "ratio": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios),
                "seconds": self.seconds, "peak_bytes": self.peak}


def make_rows(arguments):
    decode = ["-p", "0", "-n", str(arguments.tokens), "--warm-up", str(arguments.warm_up)]
    resident = ["--ram", arguments.resident_ram]
    extra = arguments.extra
    rows = [Row("decode resident", decode + resident + extra)]
    for limit in filter(None, arguments.limits.split(",")):
        ram = ["--ram", limit] if arguments.no_groups else []
        rows.append(Row(f"decode in {limit}", decode + ram + extra,
                        None if arguments.no_groups else limit))
    for n in filter(None, arguments.prompts.split(",")):
        rows.append(Row(f"prefill {n}", ["-p", n, "-n", "0", "--warm-up", "8", *resident, *extra]))
    return rows


def table(results, tolerance):
    print("\n| | old tok/s | new tok/s | new/old time | lowest | highest | |")
    print("|---|---|---|---|---|---|---|")
    for row in results:
        verdict = "slower" if row["ratio"] > 1 + tolerance else \
            "faster" if row["ratio"] < 1 - tolerance else "same"
        print(f"| {row['name']} | {1 / row['old_seconds_per_token']:.2f} | "
              f"{1 / row['new_seconds_per_token']:.2f} | {row['ratio']:.3f} | {row['lowest']:.3f} | "
              f"{row['highest']:.3f} | {verdict} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("model")
    parser.add_argument("--limits", default="6G,12G")
    parser.add_argument("--prompts", default="512,4096")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--warm-up", type=int, default=64)
    parser.add_argument("--resident-ram", default="20G")
    parser.add_argument("--no-groups", action="store_true")
    parser.add_argument("--tolerance", type=float, default=0.02)
    parser.add_argument("--json", metavar="FILE")
    own, extra = sys.argv[1:], []
    if "--" in own:
        own, extra = own[:own.index("--")], own[own.index("--") + 1:]
    arguments = parser.parse_args(own)
    arguments.extra = extra

    rows = make_rows(arguments)
    builds = [("old", arguments.old), ("new", arguments.new)]
    for number in range(arguments.rounds):
        for row in rows:
            for build, program in builds if number % 2 == 0 else reversed(builds):
                row.measure(build, program, arguments.model)
        print(f"round {number + 1}: " +
              ", ".join(f"{row.name} {row.ratios()[-1]:.3f}" for row in rows), flush=True)
    results = [row.result() for row in rows]
    table(results, arguments.tolerance)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(
            {"old": arguments.old, "new": arguments.new, "model": arguments.model, "rows": results},
            indent=1) + "\n")
    return 1 if any(row["ratio"] > 1 + arguments.tolerance for row in results) else 0


if __name__ == "__main__":
    sys.exit(main())
