#!/usr/bin/env python3
"""A chat in which every turn is a new process: what is read again, with and without the prefix store.

  bench/e2e/turns.py [MODEL] [--turns 20] [--moeflux PATH] [--think] [--context N] [-- OPTIONS...]

Runs the same chat three times: without a store, with one, and with one that also reads every answer
ahead as the next turn will show it (--prefix-ahead). The store is a directory of its own. Prints, for
each turn, how many tokens the prompt has and how many were read; sums, seconds and bytes at the end.

A prompt needs at least those tokens read that follow what it shares with everything the model has
seen: the prompt and the answer of the turn before. Exit code 1 if a turn with the store reads more
than that, the one token whose logits are needed and what is too little to be worth a file
(docs/PREFIX_STORE.md, "What is worth a file"), or if an answer differs from the one without.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

QUESTIONS = ["What is 12 + 30?", "What is the capital of Japan?", "What is 55 minus 1?", "Tell me a short story.",
             "What is 7 + 8?", "What is the capital of France?", "Count from 1 to 5.", "What is 20 minus 3?",
             "What is the capital of Italy?", "What is 9 + 9?"]

SHORTEST, LEAST_NEW = 64, 24  # tokens: of a prefix that is stored, and more than one that is stored already


def question(turn):
    return QUESTIONS[turn % len(QUESTIONS)] if turn < len(QUESTIONS) else f"What is {turn} + {2 * turn}?"


def shared(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


class Chat:
    def __init__(self, arguments, directory, options):
        self.arguments = arguments
        self.file = os.path.join(directory, "messages.json")
        self.options = options
        self.messages = []
        self.seen = []  # tokens of the last prompt and its answer
        self.ahead = []

    def call(self, command, *options):
        think = [] if self.arguments.think else ["--no-think"]
        line = [self.arguments.moeflux, command, "-m", self.arguments.model, "--messages", self.file, "--json",
                *think, *options]
        return json.loads(subprocess.run(line, stdout=subprocess.PIPE, check=True).stdout)

    def write(self, messages):
        with open(self.file, "w") as file:
            json.dump(messages, file)

    def turn(self, text):
        """(tokens of the prompt, tokens read, tokens that had to be read, the rest)"""
        self.messages.append({"role": "user", "content": text})
        self.write(self.messages)
        prompt = self.call("template")["ids"]
        start = time.monotonic()
        result = self.call("run", "--temp", "0", "-n", str(self.arguments.tokens), "-c",
                           str(self.arguments.context), "-q", *self.arguments.options, *self.options)
        seconds = time.monotonic() - start
        usage, prefix = result["usage"], result["prefix"]
        assert usage["prompt_tokens"] == len(prompt), "the prompt is not what the template says"
        new = len(prompt) - shared(prompt, max(self.seen, self.ahead, key=lambda tokens: shared(prompt, tokens)))
        self.seen = prompt + result["tokens"]
        answer = result["text"].split("</think>")[-1].strip()
        self.messages.append({"role": "assistant", "content": answer})
        if "--prefix-ahead" in self.options and result["finish_reason"] == "end":
            self.ahead = self.next_beginning()
        return {"prompt": len(prompt), "read": len(prompt) - usage["cached_tokens"], "new": max(new, 1),
                "answer": result["tokens"], "seconds": seconds, "prompt_seconds": result["timings"]["prompt_seconds"],
                "bytes_read": prefix.get("bytes_read", 0)}

    def next_beginning(self):
        trials = []
        for content in "0", "A":
            self.write(self.messages + [{"role": "user", "content": content}])
            trials.append(self.call("template")["ids"])
        return trials[0][:shared(*trials)]


def total(rows, key, first=1):
    return sum(row[key] for row in rows[first:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="models/demo")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=48, help="of an answer, at most")
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--think", action="store_true", help="let the model think before it answers")
    parser.add_argument("--moeflux", default="build/release/moeflux")
    parser.add_argument("options", nargs="*", help="more options for moeflux run, after --")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as directory:
        ways = {"without": ["--prefix-store", "off"],
                "store": ["--prefix-store", os.path.join(directory, "store")],
                "ahead": ["--prefix-store", os.path.join(directory, "ahead"), "--prefix-ahead"]}
        rows = {}
        for name, options in ways.items():
            chat = Chat(arguments, directory, options)
            rows[name] = [chat.turn(question(turn)) for turn in range(arguments.turns)]
        on_disk = {name: sum(os.path.getsize(os.path.join(folder, file)) for folder, _, files in
                             os.walk(os.path.join(directory, name)) for file in files) for name in ways}

    print(f"{'turn':>4} {'prompt':>7} {'without':>8} {'store':>6} {'new':>5} {'ahead':>6} {'new':>5}   (tokens read)")
    for turn in range(arguments.turns):
        a, b, c = (rows[name][turn] for name in ways)
        print(f"{turn + 1:>4} {a['prompt']:>7} {a['read']:>8} {b['read']:>6} {b['new']:>5}"
              f" {c['read']:>6} {c['new']:>5}")
    print()
    for name in ways:
        table = rows[name]
        print(f"{name:<8} after turn 1: {total(table, 'read'):>6} tokens read in"
              f" {total(table, 'prompt_seconds'):6.2f} s; processes {total(table, 'seconds'):6.2f} s;"
              f" store {total(table, 'bytes_read', 0) / 2**20:6.1f} MiB read, {on_disk[name] / 2**20:6.1f} MiB in it")

    bad = 0
    for name in "store", "ahead":
        for turn, (row, plain) in enumerate(zip(rows[name], rows["without"])):
            if row["answer"] != plain["answer"]:
                print(f"{name}: the answer of turn {turn + 1} differs")
                bad += 1
            known = row["prompt"] - row["new"]
            if turn > 0 and row["read"] >= row["new"] + (LEAST_NEW if known >= SHORTEST + LEAST_NEW else known + 1):
                print(f"{name}: turn {turn + 1} read {row['read']} tokens, but only {row['new']} are new")
                bad += 1
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
