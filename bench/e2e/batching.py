#!/usr/bin/env python3
"""Several sessions in one pass: tokens per second, and experts asked for and read per token.

  bench/e2e/batching.py MODEL [--sessions 1,2,4,8] [--caches 1,0.25] [--rounds 3] [--program PATH]

Runs batching_bench (a target of -DMOEFLUX_BUILD_BENCH=ON) in rounds with other texts, with all
experts in memory and with the given shares of them, and prints medians. "independent" is what a pass
would ask for if every token chose evenly and by itself. See bench/PROTOCOL.md.
"""

import argparse
import json
import statistics
import subprocess


def measure(arguments, cache, seed):
    command = [arguments.program, arguments.model, "--sessions", arguments.sessions, "--tokens",
               str(arguments.tokens), "--cache", cache, "--seed", str(seed)]
    if arguments.threads:
        command += ["--threads", str(arguments.threads)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def median(rows, key):
    return statistics.median(row[key] for row in rows)


def spread(rows, key):
    values = [row[key] for row in rows]
    return (max(values) - min(values)) / statistics.median(values)


def report(cache, rounds):
    print(f"\n{100 * float(cache):.0f} % of the experts fit in memory")
    print("| sessions | tok/s | spread | speedup | ms per pass | experts per token | independent | "
          "hit rate | read per token |")
    print("|---|---|---|---|---|---|---|---|---|")
    alone = median([r[0] for r in rounds], "tokens_per_second")
    for column in zip(*rounds):
        speed = median(column, "tokens_per_second")
        print(f"| {column[0]['sessions']} | {speed:.1f} | "
              f"{100 * spread(column, 'tokens_per_second'):.0f} % | {speed / alone:.2f} | "
              f"{1e3 * median(column, 'seconds_per_pass'):.2f} | "
              f"{median(column, 'experts_per_token'):.1f} | "
              f"{median(column, 'experts_per_token_if_independent'):.1f} | "
              f"{100 * median(column, 'hit_rate'):.1f} % | "
              f"{median(column, 'bytes_read_per_token') / 1e3:.0f} kB |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--sessions", default="1,2,4,8")
    parser.add_argument("--caches", default="1,0.25")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--program", default="build/release/batching_bench")
    arguments = parser.parse_args()
    caches = arguments.caches.split(",")
    rounds = {cache: [] for cache in caches}
    for number in range(arguments.rounds):  # the contestants take turns
        for cache in caches:
            rounds[cache].append(measure(arguments, cache, number + 1))
    for cache in caches:
        report(cache, rounds[cache])


if __name__ == "__main__":
    main()
