#!/usr/bin/env python3
"""A neighbour takes memory while a model answers: does the cache make room, grow back, and nothing else change?

  bench/e2e/elastic.py MODEL [--limit 6G] [--hog 1.5G] [--tokens 400] [--moeflux PATH]

Runs `moeflux run` twice with the same prompt inside a memory control group of --limit (root is needed): alone, and with a
neighbour in the same group that takes --hog in steps, holds it and lets it go again. Compares the answers token by token and
prints what the cache did. Exit code 1 when an answer differs, something was killed, or the cache did not give way.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

from group import Group, size

HOG = """
import sys, time
total, steps, hold = int(sys.argv[1]), 16, float(sys.argv[2])
blocks = []
for _ in range(steps):
    block = bytearray(total // steps)
    block[::4096] = b"x" * len(block[::4096])
    blocks.append(block)
    time.sleep(0.25)
time.sleep(hold)
"""


def answer(arguments, group, disturb):
    command = [arguments.moeflux, "run", arguments.model, "--raw", "--json", "--temp", "0", "--ignore-eos", "--no-profile",
               "--draft", "off", "-c", "2048", "-n", str(arguments.tokens), "The history of memory"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=group.enter)
    hog, most = None, 0
    started = time.time()
    while process.poll() is None:
        if disturb and hog is None and time.time() - started > arguments.after:
            hog = subprocess.Popen([sys.executable, "-c", HOG, str(size(arguments.hog)), str(arguments.hold)],
                                   preexec_fn=group.enter)
        most = max(most, group.used())
        time.sleep(0.1)
        if process.stdout.closed:
            break
    output = process.stdout.read()
    if hog is not None:
        hog.wait()
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {process.returncode}, {group.kills()} killed")
    result = json.loads(output)
    result["most"] = most
    result["hog"] = hog.returncode if hog is not None else None
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--limit", default="6G")
    parser.add_argument("--hog", default="1.5G")
    parser.add_argument("--hold", type=float, default=5, help="seconds the neighbour keeps its memory")
    parser.add_argument("--after", type=float, default=15, help="seconds before the neighbour comes")
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--moeflux", default=str(pathlib.Path(__file__).parents[2] / "build/release/moeflux"))
    arguments = parser.parse_args()
    group = Group(arguments.limit)
    try:
        alone = answer(arguments, group, disturb=False)
        crowded = answer(arguments, group, disturb=True)
        killed = group.kills()
    finally:
        group.remove()
    same = alone["tokens"] == crowded["tokens"]
    for name, result in (("alone", alone), ("crowded", crowded)):
        cache = result["experts"]
        print(f"{name:8} {len(result['tokens'])} tokens, {result['timings']['answer_per_second']:.2f} per second, group at most "
              f"{result['most'] / 2**30:.2f} GiB, cache {cache['slots']} slots at the end, made room {cache['cache_shrunk']} times, "
              f"grew {cache['cache_grown']} times")
    print(f"answers {'are identical' if same else 'DIFFER'}; killed: {killed}; neighbour's exit code {crowded['hog']}")
    sys.exit(0 if same and killed == 0 and crowded["hog"] == 0 and crowded["experts"]["cache_shrunk"] > 0 else 1)


if __name__ == "__main__":
    main()
