#!/usr/bin/env python3
"""A control group whose page cache is full of another program's file: how much memory does a model take there?

  bench/e2e/full_page_cache.py MODEL [--limit 6G] [--tokens 64] [--moeflux PATH] [--neighbours idle,reads,maps,writes]

Runs `moeflux run` without --ram inside a memory control group of --limit (root is needed), first alone, then beside a
neighbour in the same group that has filled it with the pages of its file: one that does nothing more, one that goes on
reading all of it, one that touches all of it through a mapping, one that writes it again and again. Prints the ceiling
that was chosen, the most memory the process had, and what the cache did. Exit code 1 when the ceiling is more than a
fifth below the limit, something was killed, the group went over its limit or an answer differs.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from group import Group, size

NEIGHBOUR = """
import mmap, sys, time
path, kind = sys.argv[1:]
step = 1 << 20
file = open(path, "r+b", buffering=0)
def read_all():
    file.seek(0)
    while file.read(step):
        pass
def write_all():
    end, block = file.seek(0, 2), bytes(step)
    file.seek(0)
    while file.tell() < end:
        file.write(block)
def touch_all():
    sum(mapped[::4096])
for _ in range(3):  # pages read twice count as active
    read_all()
if kind == "maps":
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
act = {"idle": lambda: time.sleep(1), "reads": read_all, "maps": touch_all, "writes": write_all}[kind]
act()
print("ready", flush=True)
while True:
    act()
"""


def make_file(path, n_bytes):
    block = os.urandom(1 << 20)
    with open(path, "wb") as file:
        for _ in range(n_bytes >> 20):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # whose group reads a page first pays for it


def answer(arguments, group, directory):
    command = [arguments.moeflux, "run", arguments.model, "--raw", "--json", "--temp", "0", "--ignore-eos", "--no-profile",
               "--preload", "--draft", "off", "--prefix-store", "off", "-c", "2048", "-n", str(arguments.tokens), "The history of memory"]
    with open(os.path.join(directory, "answer.json"), "w+") as output:
        process = subprocess.Popen(command, stdout=output, preexec_fn=group.enter)
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"{' '.join(command)}: ended with status {status}; {group.kills()} killed in the group")
        output.seek(0)
        result = json.load(output)
    result["most"] = usage.ru_maxrss * 1024
    return result


def beside(arguments, directory, kind):
    """One answer in a group of its own, next to a neighbour; kind None: alone."""
    group, neighbour = Group(arguments.limit), None
    try:
        if kind:
            path = os.path.join(directory, "pages")
            make_file(path, size(arguments.limit) * 31 // 32)  # all of it stays in memory when it is read again
            neighbour = subprocess.Popen([sys.executable, "-c", NEIGHBOUR, path, kind], stdout=subprocess.PIPE,
                                         preexec_fn=group.enter)
            neighbour.stdout.readline()
        before = group.used()
        result = answer(arguments, group, directory)
        result |= {"before": before, "peak": group.peak(), "killed": group.kills()}
        return result
    finally:
        if neighbour:
            neighbour.kill()
            neighbour.wait()
        group.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--limit", default="6G")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--neighbours", default="idle,reads,maps,writes")
    parser.add_argument("--directory", help="where the neighbour's file is made, on a drive (default: that of temporary files)")
    parser.add_argument("--moeflux", default=str(pathlib.Path(__file__).parents[2] / "build/release/moeflux"))
    arguments = parser.parse_args()
    limit, bad = size(arguments.limit), 0
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        alone = None
        for kind in [None, *arguments.neighbours.split(",")]:
            result = beside(arguments, directory, kind)
            alone = alone or result
            ceiling, cache = result["memory"]["ceiling"], result["experts"]
            same = result["tokens"] == alone["tokens"]
            print(f"{kind or 'alone':8} group held {result['before'] / 2**30:.2f} GiB before; ceiling {ceiling / 2**30:.2f} GiB of "
                  f"{limit / 2**30:.2f}, process at most {result['most'] / 2**30:.2f}, group {result['peak'] / 2**30:.2f}; "
                  f"{result['timings']['answer_per_second']:.2f} tok/s, cache of {cache['slots']} slots at the end, made room "
                  f"{cache['cache_shrunk']} times, grew {cache['cache_grown']} times; killed: {result['killed']}; answer "
                  f"{'is the same' if same else 'DIFFERS'}", flush=True)
            bad += ceiling < limit * 0.8 or result["killed"] > 0 or result["peak"] > limit or not same
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
