"""What no client should send, and the status it must get: used by serve_load.py.

A case is (name, bytes or a coroutine function that writes them, statuses that are right). 0 stands for a connection that is
closed without an answer. Cases whose name begins with "slow" take as long as the server's patience.
"""

import asyncio
import json

from serve_client import CHAT, head, read_response

GARBAGE = bytes(range(256)) * 16


def post(body, *lines):
    return head("POST", CHAT, body, *lines)


def plain(method, path, *lines):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


def chat_with(**fields):
    return post(json.dumps({"messages": [{"role": "user", "content": "Hi"}], **fields}).encode())


async def large_body(writer):
    writer.write(plain("POST", CHAT, "Content-Type: application/json", f"Content-Length: {100 << 20}"))
    for _ in range(100):
        writer.write(b" " * (1 << 20))
        await writer.drain()


async def large_chunked_body(writer):
    writer.write(plain("POST", CHAT, "Content-Type: application/json", "Transfer-Encoding: chunked"))
    for _ in range(100):
        writer.write(b"100000\r\n" + b" " * (1 << 20) + b"\r\n")
        await writer.drain()


async def header_flood(writer):
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
    for i in range(100):
        writer.write(b"".join(b"X-Flood-%d: %d\r\n" % (n, n) for n in range(1000 * i, 1000 * (i + 1))))
        await writer.drain()


async def endless_header(writer):
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
    for _ in range(64):
        writer.write(b"a" * (64 << 10))
        await writer.drain()


async def slow_header(writer):
    for byte in b"GET /health HTTP/1.1\r\nX-Slow: " + b"a" * 600:
        writer.write(bytes([byte]))
        await asyncio.sleep(0.2)


async def slow_body(writer):
    writer.write(plain("POST", CHAT, "Content-Type: application/json", "Content-Length: 100000"))
    for _ in range(200):
        writer.write(b" ")
        await asyncio.sleep(0.2)


async def half_body(writer):
    writer.write(plain("POST", CHAT, "Content-Type: application/json", "Content-Length: 1000") + b'{"messages": [')
    writer.write_eof()


CASES = [
    ("body of 100 MB", large_body, [413]),
    ("body of 100 MB in chunks", large_chunked_body, [413, 503]),  # several together are too much earlier
    ("100,000 headers", header_flood, [431]),
    ("header of 4 MB", endless_header, [431]),
    ("target of 100 kB", plain("GET", "/" + "a" * 100_000), [414, 431]),
    ("body cut off", half_body, [0, 400]),
    ("slow header", slow_header, [408]),
    ("slow body", slow_body, [408]),
    ("bad JSON", post(b'{"messages": [{"role": "user" "content"}]}'), [400]),
    ("JSON cut off", post(b'{"messages": ['), [400]),
    ("JSON that is no object", post(b"42"), [400]),
    ("JSON with invalid UTF-8", post(b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}'), [400]),
    ("lists 1,000,000 deep", post(b"[" * 1_000_000), [400, 413]),
    ("objects 300 deep", post(b'{"a":' * 300 + b"1" + b"}" * 300), [400]),
    ("schema 200 deep", chat_with(response_format={"type": "json_schema", "json_schema": {
        "name": "x", "schema": json.loads('{"type":"array","items":' * 200 + "{}" + "}" * 200)}}), [400]),
    ("number that overflows", post(b'{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1e999}'), [400]),
    ("messages of the wrong type", post(b'{"messages": {"role": "user"}}'), [400]),
    ("no body", plain("POST", CHAT, "Content-Type: application/json", "Content-Length: 0"), [400]),
    ("form instead of JSON", plain("POST", CHAT, "Content-Type: application/x-www-form-urlencoded",
                                   "Content-Length: 3") + b"a=b", [400]),  # curl -d says so of JSON
    ("XML instead of JSON", plain("POST", CHAT, "Content-Type: text/xml", "Content-Length: 4") + b"<a/>", [415]),
    ("unknown path", plain("GET", "/etc/passwd"), [404]),
    ("path that climbs", plain("GET", "/../../etc/passwd"), [400, 404]),
    ("wrong method", plain("DELETE", CHAT), [405]),
    ("foreign host name", b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n", [403]),
    ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + GARBAGE, [400]),
    ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [400, 505]),
    ("HTTP/9.9", b"GET / HTTP/9.9\r\n\r\n", [400, 505]),
    ("all byte values", GARBAGE, [400]),
    ("zeros", bytes(4096), [400]),
    ("two lengths", plain("POST", CHAT, "Content-Length: 5", "Content-Length: 6") + b"hello!", [400]),
    ("length and chunks", plain("POST", CHAT, "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n", [400]),
    ("length below zero", plain("POST", CHAT, "Content-Length: -1"), [400]),
    ("length that overflows", plain("POST", CHAT, "Content-Length: 99999999999999999999"), [400, 413]),
    ("chunk that overflows", plain("POST", CHAT, "Transfer-Encoding: chunked") + b"ffffffffffffffffff\r\n", [400, 413]),
    ("unknown Expect", plain("POST", CHAT, "Expect: miracles", "Content-Length: 2") + b"{}", [417]),
    ("garbage after a request", plain("GET", "/health") + GARBAGE, [200, 400]),
    ("100 requests at once", plain("GET", "/health") * 100, [200] * 100),
]


async def statuses(port, what, at_most):
    """The statuses of all answers until the server closes the connection or says no more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = []

    async def write():
        try:
            if callable(what):
                await what(writer)
            else:
                writer.write(what)
                await writer.drain()
        except OSError:  # the server has heard enough
            pass

    writing = asyncio.ensure_future(write())
    try:
        while True:
            status, _ = await asyncio.wait_for(read_response(reader), at_most if not found else 1)
            found.append(status)
    except (asyncio.IncompleteReadError, asyncio.TimeoutError, OSError):
        return found
    finally:
        writing.cancel()
        writer.transport.abort()


async def run_case(port, case):
    """What is wrong, or nothing."""
    name, what, right = case
    found = await statuses(port, what, at_most=30)
    several = right[0] == 200
    fine = found == right if several else (found or [0])[0] in right and len(found) <= 1
    return None if fine else f"{name}: {found or 'no answer'} instead of {right}"
