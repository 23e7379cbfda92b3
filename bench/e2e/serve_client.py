"""A server of moeflux in a process of its own and clients for it, for the scripts beside this file."""

import asyncio
import atexit
import json
import os
import re
import resource
import signal

CHAT = "/v1/chat/completions"


class Server:
    """moeflux serve on a free port, of the program, model and options of `arguments`. `files`: the soft limit on open files it
    is started with."""

    def __init__(self, process, port):
        self.process, self.pid, self.port = process, process.pid, port
        self.said = asyncio.ensure_future(process.stderr.read())

    @classmethod
    async def start(cls, arguments, *options, files=None):
        def limit():
            if files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

        process = await asyncio.create_subprocess_exec(
            arguments.moeflux, "serve", arguments.model, "--port", "0", "--prefix-store", "off", "--no-profile",
            *arguments.options, *options, stderr=asyncio.subprocess.PIPE, preexec_fn=limit)
        atexit.register(cls.kill, process)
        said = b""
        while line := await process.stderr.readline():
            said += line
            if found := re.search(rb"ready: .* at http://[^:]*:(\d+)/v1", line):
                return cls(process, int(found[1]))
        raise RuntimeError(f"the server ended: {said.decode()}")

    @staticmethod
    def kill(process):
        """A script that fails leaves no server behind."""
        if process.returncode is None:
            os.kill(process.pid, signal.SIGKILL)

    def rss(self):
        """Bytes of memory the server has now."""
        with open(f"/proc/{self.pid}/status") as file:
            return int(re.search(r"VmRSS:\s+(\d+) kB", file.read())[1]) * 1024

    def peak(self):
        """Bytes of memory it has had at most."""
        with open(f"/proc/{self.pid}/status") as file:
            return int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1]) * 1024

    def n_files(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    async def metrics(self):
        _, body = await request(self.port, "GET", "/metrics")
        return {name: float(value) for name, value in re.findall(r"^moeflux:(\w+) (\S+)$", body.decode(), re.M)}

    async def wait_until_idle(self, at_most=30):
        """The metrics once no answer runs or waits."""
        for _ in range(int(at_most / 0.005)):
            now = await self.metrics()
            if now["requests_running"] + now["requests_waiting"] == 0:
                return now
            await asyncio.sleep(0.005)
        raise RuntimeError(f"still at work after {at_most} s")

    async def stop(self, at_most=60):
        """The exit code."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), at_most)


def head(method, path, body=b"", *lines):
    """The bytes of a request."""
    fields = ["Host: localhost", *lines]
    if body:
        fields += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *fields, "", ""]).encode() + body


async def read_head(reader):
    """(status, fields)"""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    return int(lines[0].split()[1]), fields


async def chunks(reader):
    while size := int(await reader.readuntil(b"\r\n"), 16):
        data = await reader.readexactly(size)
        await reader.readexactly(2)
        yield data
    await reader.readexactly(2)


async def read_response(reader):
    """(status, body)"""
    status, fields = await read_head(reader)
    if fields.get("transfer-encoding") == "chunked":
        return status, b"".join([data async for data in chunks(reader)])
    return status, await reader.readexactly(int(fields.get("content-length", 0)))


async def request(port, method, path, body=b""):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head(method, path, body, "Connection: close"))
        return await read_response(reader)
    finally:
        writer.close()


class Answer:
    """What came of a streamed chat: its text, and how it ended."""

    def __init__(self):
        self.text, self.n_pieces, self.status = "", 0, None
        self.finish, self.error, self.done, self.clean = None, None, False, False

    def take(self, line):
        if line == "[DONE]":
            self.done = True
            return
        event = json.loads(line)
        self.error = event.get("error", self.error)
        for choice in event.get("choices", []):
            piece = choice["delta"].get("content")
            self.n_pieces += 1 if piece else 0
            self.text += piece or ""
            self.finish = choice["finish_reason"] or self.finish


async def chat(port, question, on_piece=None, **fields):
    """An Answer. on_piece(answer) is called for every event; when it returns False the client leaves at once."""
    body = {"messages": [{"role": "user", "content": question}], "stream": True, "temperature": 0,
            "reasoning_effort": "none", **fields}
    answer = Answer()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head("POST", CHAT, json.dumps(body).encode(), "Connection: close"))
        answer.status, answer_fields = await read_head(reader)
        if answer_fields.get("transfer-encoding") != "chunked":
            answer.error = json.loads(await reader.readexactly(int(answer_fields["content-length"])))["error"]
            return answer
        rest = b""
        async for data in chunks(reader):
            *events, rest = (rest + data).split(b"\n\n")
            for event in events:
                if not event.startswith(b"data: "):
                    continue
                answer.take(event[6:].decode())
                if on_piece and on_piece(answer) is False:
                    return answer
        answer.clean = True
        return answer
    finally:
        writer.transport.abort()
