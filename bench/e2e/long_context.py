#!/usr/bin/env python3
"""Long prompts: speed, memory and answers, for each type of key-value cache.

  bench/e2e/long_context.py MODEL --answers FILE --texts FILE [--lengths 0,1000,2000,4000,32000]
                            [--kv f32,f16,bf16,q8] [--cases 5] [--precision exact] [--moeflux PATH]

Asks needle questions ("What is the code of ...?", the cases of that family in FILE) after a history
of that many tokens of other conversations. Says, for each length and type: how many answers are
right, how many are those of the first type, the speed of the prompt, and the peak memory against the
plan's ceiling, which every run gets as --ram. Exit code 1 if a run is over its ceiling, or if a type
loses an answer that the first one has.
"""

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile

TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", re.S)


def conversations(path):
    """Pairs of question and answer from texts in the form of a rendered chat."""
    for text in json.load(open(path)):
        turns = TURN.findall(text)
        if [role for role, _ in turns] == ["user", "assistant"]:
            yield turns[0][1], turns[1][1].split("</think>\n\n")[-1]


def count_tokens(arguments, text):
    command = [arguments.moeflux, "tokenize", "-m", arguments.model, "--ids", "-f", "-"]
    return len(subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout.split())


def history(pairs, n_tokens):
    """At most that many tokens of conversation; a pair is (tokens, question, answer)."""
    messages = []
    for size, question, answer in itertools.cycle(pairs):
        n_tokens -= size
        if n_tokens < 0:
            return messages
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


class Runner:
    def __init__(self, arguments):
        self.arguments = arguments
        self.context = max(arguments.lengths) + arguments.room
        self.ram = {}

    def ceiling(self, kv):
        if kv not in self.ram:
            command = [self.arguments.moeflux, "plan", self.arguments.model, "--json", "--kv", kv, "-c",
                       str(self.context), "--disk", "1", "--memory", "10"]
            self.ram[kv] = json.loads(subprocess.check_output(command))["all_bytes"]
        return self.ram[kv]

    def ask(self, messages, kv):
        """The result of `moeflux run --json`, with the peak of its memory."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(messages, file)
            file.flush()
            command = [self.arguments.moeflux, "run", "-m", self.arguments.model, "--messages", file.name,
                       "--json", "--no-think", "--temp", "0", "-n", "40", "-q", "--no-profile",
                       "-c", str(self.context), "--kv", kv, "--ram", str(self.ceiling(kv)),
                       "--precision", self.arguments.precision]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            output = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit code {process.returncode}")
        result = json.loads(output)
        result["peak"] = usage.ru_maxrss * 1024
        return result


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--answers", required=True)
    parser.add_argument("--texts", required=True)
    parser.add_argument("--lengths", default="0,1000,2000,4000,32000",
                        type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--kv", default="f32,f16,bf16,q8", type=lambda text: text.split(","))
    parser.add_argument("--cases", type=int, default=5)
    parser.add_argument("--room", type=int, default=768, help="tokens for the question and its answer")
    parser.add_argument("--precision", default="exact")
    parser.add_argument("--moeflux", default="build/release/moeflux")
    arguments = parser.parse_args()

    markup = 15  # tokens of the template around a question and its answer
    pairs = [(count_tokens(arguments, question + answer) + markup, question, answer)
             for question, answer in conversations(arguments.texts)]
    cases = [json.loads(line) for line in open(arguments.answers)]
    cases = [case for case in cases if case["family"] == "needle"][:arguments.cases]
    runner = Runner(arguments)

    failed = False
    print("tokens  kv     right  as first  tok/s prompt  peak MiB of ceiling")
    for length in arguments.lengths:
        past = history(pairs, length)
        first = None
        for kv in arguments.kv:
            results = [runner.ask(past + case["messages"], kv) for case in cases]
            texts = [result["text"].strip() for result in results]
            right = [text == case["want"] for text, case in zip(texts, cases)]
            first = first or (texts, right)
            same = sum(a == b for a, b in zip(texts, first[0]))
            peak = max(result["peak"] for result in results)
            lost = any(had and not has for had, has in zip(first[1], right))
            over = peak > runner.ceiling(kv)
            failed = failed or lost or over
            speed = max(result["timings"]["prompt_per_second"] for result in results)
            print(f"{results[0]['usage']['prompt_tokens']:<7} {kv:<6} {sum(right)}/{len(cases):<5}"
                  f"{same}/{len(cases):<7} {speed:<13.0f} {peak / 2**20:.0f} of "
                  f"{runner.ceiling(kv) / 2**20:.0f}{'  LOST' if lost else ''}{'  OVER' if over else ''}",
                  flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
