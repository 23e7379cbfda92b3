#!/usr/bin/env python3
"""The cache that `moeflux pull` writes, read by the package huggingface_hub as its own, and the other way round.

  huggingface_hub_test.py MOEFLUX FIXTURE

Serves the files of FIXTURE as a hub on this machine. Skipped without that package (exit code 77).
"""

import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

try:
    import huggingface_hub
except ImportError:
    print("SKIP: the Python package huggingface_hub is not on this machine")
    sys.exit(77)

NAME, COMMIT = "maker/tiny", "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of a hub as both sides ask for."""

    protocol_version = "HTTP/1.1"
    files = {}  # path -> bytes
    served = []

    def log_message(self, *_):
        pass

    def etag(self, path):
        data = self.files[path]
        if path.endswith(".safetensors"):
            return hashlib.sha256(data).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

    def listing(self):
        siblings = []
        for path, data in self.files.items():
            one = {"rfilename": path, "size": len(data),
                   "blobId": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}
            if path.endswith(".safetensors"):
                one["lfs"] = {"sha256": self.etag(path), "size": len(data), "pointerSize": 130}
            siblings.append(one)
        return json.dumps({"id": NAME, "modelId": NAME, "sha": COMMIT, "siblings": siblings, "private": False,
                           "tags": [], "downloads": 0, "likes": 0}).encode()

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.split("?")[0]
        if "/tree/" in path:
            tree = [{"type": "file", "path": one["rfilename"], "size": one["size"], "oid": one["blobId"]}
                    for one in json.loads(self.listing())["siblings"]]
            return self.answer(json.dumps(tree).encode(), {"Content-Type": "application/json"})
        if path.startswith("/api/models/"):
            return self.answer(self.listing(), {"Content-Type": "application/json"})
        name = path.split("/resolve/")[-1].split("/", 1)[1]
        if name not in self.files:
            return self.answer(b"", {"X-Error-Code": "EntryNotFound"}, 404)
        if self.command == "GET":
            self.served.append(name)
        head = {"ETag": f'"{self.etag(name)}"', "X-Repo-Commit": COMMIT}
        if name.endswith(".safetensors"):
            head |= {"X-Linked-Etag": f'"{self.etag(name)}"', "X-Linked-Size": str(len(self.files[name]))}
        self.answer(self.files[name], head)

    def answer(self, body, head, status=200):
        self.send_response(status)
        for key, value in head.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def main():
    moeflux, fixture = sys.argv[1], pathlib.Path(sys.argv[2])
    Hub.files = {path.name: path.read_bytes() for path in fixture.iterdir()}
    wanted = {name for name in Hub.files if name.endswith(".json") or name.startswith("model")}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"

    def run(cache, *arguments):
        env = os.environ | {"HF_ENDPOINT": url, "HF_HUB_CACHE": cache}
        return subprocess.run([moeflux, *arguments], env=env, check=True, capture_output=True, text=True).stdout

    def download(cache, **more):
        return huggingface_hub.snapshot_download(NAME, cache_dir=cache, endpoint=url, **more)

    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        pulled = json.loads(run(ours, "pull", NAME, "--json"))
        assert pulled["bytes_fetched"] == sum(len(Hub.files[name]) for name in wanted), pulled
        # Without the network: it must be complete in the package's eyes.
        path = download(ours, local_files_only=True)
        assert os.path.samefile(path, pulled["path"]), (path, pulled)
        for name in wanted:
            found = huggingface_hub.try_to_load_from_cache(NAME, name, cache_dir=ours)
            assert isinstance(found, str) and pathlib.Path(found).read_bytes() == Hub.files[name], (name, found)
        info = huggingface_hub.scan_cache_dir(ours)
        assert not info.warnings, info.warnings
        (repo,) = info.repos
        (revision,) = repo.revisions
        assert (repo.repo_id, revision.commit_hash, set(revision.refs)) == (NAME, COMMIT, {"main"}), repo
        assert {file.file_name for file in revision.files} == wanted
        # With the network it fetches what we have left out, and nothing else.
        Hub.served.clear()
        download(ours)
        assert set(Hub.served) == set(Hub.files) - wanted, Hub.served

        # The other way round.
        Hub.served.clear()
        path = download(theirs)
        assert set(Hub.served) == set(Hub.files)
        Hub.served.clear()
        again = json.loads(run(theirs, "pull", NAME, "--json"))
        assert again["bytes_fetched"] == 0 and not Hub.served, (again, Hub.served)
        assert os.path.samefile(again["path"], path)
        assert json.loads(run(theirs, "info", "--json", NAME))["path"] == again["path"]
        assert [model["name"] for model in json.loads(run(theirs, "ls", "--json"))] == [NAME]
        print(f"huggingface_hub {huggingface_hub.__version__}: both caches are read by both")


if __name__ == "__main__":
    main()
