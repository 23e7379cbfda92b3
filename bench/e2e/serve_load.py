#!/usr/bin/env python3
"""moeflux serve under load: many clients, idle ones, ones that leave, ones that mean harm, and a signal to stop.

  bench/e2e/serve_load.py [MODEL] [--clients 64] [--seconds 300] [--idle 1000] [--leavers 200] [--only steady,idle] [--quick]

Every part starts a server of its own with the demo model, whose right answers are known, and prints what it measured and
whether that is as it must be:

  steady    clients that ask, read the answer as it comes, think and ask again: answers as when alone, nobody starves, memory flat
  idle      connections that say nothing while others work, on a server started with room for 256 open files
  leavers   clients that leave in mid-stream: their work ends within a token, memory and files come back
  hostile   see serve_hostile.py, while others work
  memory    bodies that are small and become large, one after the other and at once: all within --ram 500M
  stop      SIGTERM in mid-stream: short answers end, endless ones are ended with a reason, exit code 0

Exit code 1 when something is not as it must be. --quick takes seconds instead of minutes.
"""

import argparse
import asyncio
import json
import pathlib
import random
import signal
import statistics
import sys
import time

import serve_hostile
from serve_client import CHAT, Server, chat, head, read_response, request

MIB = 2**20
ENDLESS = {"ignore_eos": True, "max_tokens": 100_000}


class Report:
    def __init__(self):
        self.rows = []

    def add(self, part, what, value, fine=None):
        """fine: whether it is as it must be; None: just a figure."""
        self.rows.append({"part": part, "what": what, "value": value, "fine": fine})
        verdict = {None: "", True: "ok", False: "WRONG"}[fine]
        print(f"{part:<8} {what:<52} {value:>24} {verdict}", flush=True)

    def failed(self):
        return any(row["fine"] is False for row in self.rows)


def quantiles(seconds):
    """p50, p90, p99 and the most, in ms"""
    ordered = sorted(seconds)
    at = [ordered[min(int(len(ordered) * part), len(ordered) - 1)] for part in (0.5, 0.9, 0.99, 1) if ordered]
    return " ".join(f"{1000 * value:.0f}" for value in at)


def questions():
    """(question, right answer)"""
    capitals = {"Japan": "Tokyo", "France": "Paris", "Italy": "Rome", "Norway": "Oslo", "Kenya": "Nairobi", "Peru": "Lima"}
    out = [(f"What is the capital of {land}?", f"The capital of {land} is {city}.") for land, city in capitals.items()]
    for a in range(11, 35):
        out.append((f"What is {a} + {2 * a + 1}?", f"{a} + {2 * a + 1} = {3 * a + 1}"))
    return out


async def warm_up(report, part, server):
    """Has every question answered, one at a time: afterwards the caches are full."""
    for question, right in questions():
        answer = await chat(server.port, question)
        if answer.text != right:
            report.add(part, f"alone: {question}", answer.text, False)


async def next_answer(report, part, server):
    text = (await chat(server.port, "What is 12 + 30?")).text
    report.add(part, "next answer", text, text == "12 + 30 = 42")


async def memory_of(server, seconds, step=1.0):
    samples, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        samples.append(server.rss())
        await asyncio.sleep(min(step, seconds / 20))
    return samples


class Worker:
    """A client that asks again and again until its time is over."""

    def __init__(self, server, seed, think):
        self.server, self.random, self.think = server, random.Random(seed), think
        self.first, self.gaps, self.wrong = [], [], []
        self.n_answers = 0

    async def run(self, seconds):
        end = time.monotonic() + seconds
        await asyncio.sleep(self.random.uniform(0, self.think))
        while time.monotonic() < end:
            question, right = self.random.choice(questions())
            began = last = time.monotonic()

            def on_piece(answer):
                nonlocal last
                if answer.n_pieces == 0:
                    return
                now = time.monotonic()
                (self.first if last == began else self.gaps).append(now - last)
                last = now

            try:
                answer = await chat(self.server.port, question, on_piece)
                if answer.text != right or not answer.done or not answer.clean:
                    self.wrong.append(f"{question} {answer.status} {answer.text!r} {answer.error}")
            except (OSError, asyncio.IncompleteReadError) as error:
                self.wrong.append(f"{question} {error!r}")
            self.n_answers += 1
            await asyncio.sleep(self.random.uniform(0.5, 1.5) * self.think)


async def work(server, n, seconds, think):
    workers = [Worker(server, seed, think) for seed in range(n)]
    await asyncio.gather(*(worker.run(seconds) for worker in workers))
    return workers


def report_work(report, part, workers):
    wrong = [text for worker in workers for text in worker.wrong]
    counts = [worker.n_answers for worker in workers]
    report.add(part, "answers, all right", sum(counts), not wrong and sum(counts) > 0)
    for text in wrong[:5]:
        print(f"         {text}")
    report.add(part, "time to first token, p50 p90 p99 max, ms", quantiles(sum((w.first for w in workers), [])))


async def steady(report, arguments):
    server = await Server.start(arguments, "-c", "512", "--queue", str(arguments.clients))
    await warm_up(report, "steady", server)
    watching = asyncio.ensure_future(memory_of(server, arguments.seconds))
    workers = await work(server, arguments.clients, arguments.seconds, arguments.think)
    memory = await watching
    report_work(report, "steady", workers)
    report.add("steady", "time between pieces, p50 p90 p99 max, ms", quantiles(sum((w.gaps for w in workers), [])))
    counts = [worker.n_answers for worker in workers]
    mean = statistics.mean(counts)
    report.add("steady", "answers per client: least, mean, most", f"{min(counts)} {mean:.1f} {max(counts)}",
               min(counts) >= 0.5 * mean and max(counts) <= 2 * mean)
    fifth = max(len(memory) // 5, 1)
    before, after = (statistics.median(part) / MIB for part in (memory[fifth:2 * fifth], memory[-fifth:]))
    report.add("steady", "memory in the second and last fifth, MiB", f"{before:.1f} {after:.1f}",
               None if arguments.quick else after - before < max(2.0, 0.02 * before))
    report.add("steady", "open files afterwards", server.n_files(), server.n_files() < 64)
    report.add("steady", "exit code", await server.stop(), server.process.returncode == 0)


async def idle(report, arguments):
    server = await Server.start(arguments, "-c", "512", files=256)
    before, files = server.rss(), server.n_files()
    connections = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", server.port)
                                         for _ in range(arguments.idle)))
    count = int((await server.metrics())["connections"])
    report.add("idle", "connections of the server", count, count >= arguments.idle)
    report.add("idle", "memory per idle connection, KiB", f"{(server.rss() - before) / 1024 / arguments.idle:.1f}")
    report_work(report, "idle", await work(server, 8, min(arguments.seconds, 20), 0.1))

    async def health(reader, writer):
        try:
            writer.write(head("GET", "/health"))
            return (await read_response(reader))[0]
        except (OSError, asyncio.IncompleteReadError):
            return 0

    alive = await asyncio.gather(*(health(*connection) for connection in connections))
    report.add("idle", "of these, answered when they asked at last", alive.count(200), alive.count(200) == arguments.idle)
    for _, writer in connections:
        writer.transport.abort()
    await asyncio.sleep(0.5)
    report.add("idle", "open files more than before", server.n_files() - files, server.n_files() - files <= 2)
    report.add("idle", "exit code", await server.stop(), server.process.returncode == 0)


async def leave(server, question, after, **fields):
    """Pieces that came until the client left."""
    answer = await chat(server.port, question, lambda answer: answer.n_pieces < after, **fields)
    return answer.n_pieces


async def leavers(report, arguments):
    server = await Server.start(arguments, "-c", "4096", "--draft", "off", "--queue", str(arguments.leavers))
    words = random.Random(1).choices("fox cat lamp key red blue barn mill soup pie".split(), k=1500)
    question = f"Repeat after me: {' '.join(words)}"
    wasted = []
    await leave(server, question, 1)
    for trial in range(20):  # one at a time: what was computed that nobody has read
        before = await server.wait_until_idle()
        n_read = await leave(server, question, 2 + trial % 5)
        after = await server.wait_until_idle()
        wasted.append(int(after["generated_tokens_total"] - before["generated_tokens_total"]) - n_read)
    report.add("leavers", "tokens after the last one read, one client at a time",
               f"median {statistics.median(wasted):g}, most {max(wasted)}", statistics.median(wasted) <= 1)

    await warm_up(report, "leavers", server)
    before, memory, files = await server.wait_until_idle(), server.rss(), server.n_files()
    began = time.monotonic()
    read = await asyncio.gather(*(leave(server, "Tell me a story about a fox and a lamp.", 1 + i % 8, **ENDLESS)
                                  for i in range(arguments.leavers)))
    left = time.monotonic()
    after = await server.wait_until_idle()
    report.add("leavers", "seconds until all had left, and until the server knew",
               f"{left - began:.1f} {time.monotonic() - left:.2f}", time.monotonic() - left < 2)
    n_cancelled = int(after["requests_cancelled_total"] - before["requests_cancelled_total"])
    report.add("leavers", "answers given up", n_cancelled, n_cancelled == arguments.leavers)
    n_more = int(after["generated_tokens_total"] - before["generated_tokens_total"]) - sum(read)
    report.add("leavers", "tokens after the last one read, per client", f"{n_more / arguments.leavers:.2f}",
               n_more <= 2 * arguments.leavers)
    more = (server.rss() - memory) / MIB
    report.add("leavers", "memory more than before, MiB", f"{more:.1f}", arguments.any_memory or more < 16)
    report.add("leavers", "open files more than before", server.n_files() - files, server.n_files() - files <= 2)
    await next_answer(report, "leavers", server)
    report.add("leavers", "exit code", await server.stop(), server.process.returncode == 0)


async def large_bodies(report, server):
    """Eight of 60 MB at once, more than the server takes at a time, and again: what they leave behind does not grow."""
    body = json.dumps({"messages": [{"role": "user", "content": "word " * (12 << 20)}]}).encode()
    before, left = server.rss(), []

    async def one():
        try:
            return (await request(server.port, "POST", CHAT, body))[0]
        except (OSError, asyncio.IncompleteReadError):
            return 0

    for _ in range(3):
        seen = await asyncio.gather(*(one() for _ in range(8)))
        report.add("hostile", "60 MB eight times at once", " ".join(map(str, sorted(seen))), set(seen) <= {0, 413, 503})
        await asyncio.sleep(1)
        left.append((server.rss() - before) / MIB)
    report.add("hostile", "memory they leave behind each time, MiB", " ".join(f"{each:.0f}" for each in left),
               max(left) < 256 and left[-1] < left[0] + 64)


async def hostile(report, arguments):
    server = await Server.start(arguments, "-c", "512")
    await warm_up(report, "hostile", server)
    memory, files = server.rss(), server.n_files()
    seconds = 3 if arguments.quick else 20
    cases = [case for case in serve_hostile.CASES if not (arguments.quick and case[0].startswith("slow"))]
    working = asyncio.ensure_future(work(server, 4, seconds, 0.1))
    watching = asyncio.ensure_future(memory_of(server, seconds, 0.1))
    found = await asyncio.gather(*(serve_hostile.run_case(server.port, case) for case in cases * arguments.rounds))
    wrong = [text for text in found if text]
    for text in sorted(set(wrong)):
        report.add("hostile", text, "", False)
    report.add("hostile", "cases with the right status", len(found) - len(wrong), not wrong)
    report_work(report, "hostile", await working)
    most, now = (max(await watching) - memory) / MIB, (server.rss() - memory) / MIB
    report.add("hostile", "memory more than before: at most, at the end, MiB", f"{most:.0f} {now:.0f}",
               arguments.any_memory or (most < 700 and now < 64))
    if not arguments.quick:
        await large_bodies(report, server)
    report.add("hostile", "open files more than before", server.n_files() - files, server.n_files() - files <= 2)
    await next_answer(report, "hostile", server)
    report.add("hostile", "exit code", await server.stop(), server.process.returncode == 0)


def bodies(size):
    """(name, path, body): bodies of about `size` bytes that take as much memory as possible."""

    def many(item):
        return b"[" + b",".join([item] * (size // (len(item) + 1))) + b"]"

    def chat(content, **fields):
        return json.dumps({"messages": [{"role": "user", "content": content}], "max_tokens": 1, **fields}).encode()

    schema = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "x": "HERE"}}}
    with_tools = chat("Hi", tools=[schema])
    letters = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz ", k=1000)) * (size // 1000)
    return [
        ("messages of empty lists", CHAT, b'{"messages":' + many(b"[]") + b"}"),
        ("a field of empty objects", CHAT, b'{"messages":[{"role":"user","content":"Hi"}],"x":' + many(b"{}") + b"}"),
        ("tools with lists", CHAT, with_tools.replace(b'"HERE"', many(b"[1,[]]"))),
        ("deep lists", CHAT, b'{"x":' + many(b"[" * 200 + b"]" * 200) + b"}"),
        ("short messages", CHAT, b'{"messages":' + many(b'{"role":"user","content":"a"}') + b"}"),
        ("objects", "/v1/messages", b'{"messages":' + many(b'{"a":1,"b":2}') + b"}"),
        ("tokens", "/v1/completions", b'{"prompt":' + many(b"1") + b"}"),
        ("text to answer", CHAT, chat(letters)),
        ("text to count", "/v1/messages/count_tokens", chat(letters)),
        ("text to tokenize", "/tokenize", json.dumps({"content": letters, "with_pieces": True}).encode()),
        ("template of a text", "/apply-template", chat(letters)),
    ]


async def memory(report, arguments):
    """Far too large ones are refused; ones that are almost too large are worked on."""
    server = await Server.start(arguments, "--ram", "500M")
    ceiling = 500 * MIB

    async def statuses(path, body, n):
        async def one():
            try:
                return (await request(server.port, "POST", path, body))[0]
            except (OSError, asyncio.IncompleteReadError):
                return 0  # the server had heard enough

        return await asyncio.gather(*(one() for _ in range(n)))

    sizes, in_turn = ([6 * MIB, 200_000], 1) if arguments.quick else ([60 * MIB, 40 * MIB, 700_000, 200_000, 60_000], 100)
    right = {0, 200, 400, 413, 429, 503, 529}  # 529: 503 in the words of Anthropic
    for size in sizes:
        for name, path, body in bodies(size):
            n = in_turn if name == "messages of empty lists" else max(in_turn // 20, 1)
            seen = [status for _ in range(n) for status in await statuses(path, body, 1)]
            seen += await statuses(path, body, 8)
            counts = ", ".join(f"{seen.count(each)} x {each}" for each in sorted(set(seen)))
            report.add("memory", f"{len(body) / 1e6:.2f} MB, {name}: peak {server.peak() / MIB:.0f} MiB", counts,
                       set(seen) <= right and (arguments.any_memory or server.peak() <= ceiling))
    # What a coding agent sends: 40,000 tokens and fifty tools, several at once.
    words = " ".join(random.Random(1).choices("let us read the file and change two lines of it".split(), k=34_000))
    tools = [{"name": f"tool_{i}", "description": "Does something useful. " * 20,
              "input_schema": {"type": "object", "properties": {f"field_{k}": {"type": "string", "description": "what it is"}
                                                                for k in range(8)}}} for i in range(50)]
    body = json.dumps({"messages": [{"role": "user", "content": words}], "tools": tools, "max_tokens": 1}).encode()
    seen = await statuses("/v1/messages/count_tokens", body, 8)
    report.add("memory", f"{len(body)} bytes of a coding agent, eight at once", str(set(seen)), set(seen) == {200})
    report.add("memory", "most memory, MiB (of 500)", f"{server.peak() / MIB:.0f}",
               arguments.any_memory or server.peak() <= ceiling)
    await next_answer(report, "memory", server)
    report.add("memory", "exit code", await server.stop(), server.process.returncode == 0)


async def stop(report, arguments):
    server = await Server.start(arguments, "-c", "16384", "--parallel", "8", "--drain-seconds", "3")
    started = [asyncio.Event() for _ in range(8)]

    def listen(i):
        fields = ENDLESS if i % 2 else {"max_tokens": 20}
        return chat(server.port, "Tell me a story about a fox and a lamp.",
                    lambda answer: started[i].set() if answer.n_pieces else None, **fields)

    streams = [asyncio.ensure_future(listen(i)) for i in range(8)]
    await asyncio.gather(*(event.wait() for event in started))
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    answers = await asyncio.gather(*streams)
    short, endless = answers[::2], answers[1::2]
    report.add("stop", "short answers that came to their end", sum(a.done and a.finish == "length" for a in short),
               all(a.done and a.clean and a.finish == "length" for a in short))
    report.add("stop", "endless ones ended with a reason", sum(a.error is not None for a in endless),
               all(a.clean and not a.done and a.error["type"] == "unavailable_error" for a in endless))
    code = await asyncio.wait_for(server.process.wait(), 60)
    report.add("stop", "exit code", code, code == 0)
    report.add("stop", "seconds from the signal (3 to drain)", f"{time.monotonic() - began:.2f}",
               time.monotonic() - began < 8)


PARTS = {"steady": steady, "idle": idle, "leavers": leavers, "hostile": hostile, "memory": memory, "stop": stop}


def parse_arguments():
    root = pathlib.Path(__file__).parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=str(root / "models/demo"))
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=300, help="of the steady load")
    parser.add_argument("--think", type=float, default=1, help="seconds a client thinks between answers, on average")
    parser.add_argument("--idle", type=int, default=1000)
    parser.add_argument("--leavers", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=4, help="how often each hostile case comes at the same time")
    parser.add_argument("--only", default=",".join(PARTS), help="parts to run")
    parser.add_argument("--quick", action="store_true", help="few and short, without cases that wait for the server's patience")
    parser.add_argument("--any-memory", action="store_true", help="do not judge memory: for builds that keep what is freed")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--moeflux", default=str(root / "build/release/moeflux"))
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.clients, arguments.seconds, arguments.think = 16, 2, 0.1
        arguments.idle, arguments.leavers, arguments.rounds = 300, 40, 1
    arguments.options = ["--threads", "1"] if arguments.quick else []  # it runs beside other tests
    return arguments


async def main():
    arguments = parse_arguments()
    report = Report()
    for part in arguments.only.split(","):
        await PARTS[part](report, arguments)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"options": vars(arguments), "rows": report.rows}, indent=1))
    return 1 if report.failed() else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
