#!/usr/bin/env python3
"""Checks that every file the documents name exists.

  check_named_files.py ROOT   checks README.md, CONTRIBUTING.md, docs and bench/PROTOCOL.md
  check_named_files.py --self-test

A file is named in backquotes: by its path from the root (`src/engine/engine.cpp`), from src/ or
include/ (`engine/decoder.h`), or by its name alone (`decoder.h`). `*` stands for anything, `{h,cpp}`
for each; what follows a space is not looked at, so commands count too. A folder ends with a slash or
begins at the root. Links to files are checked as well. Blocks of code are not, but for the table of
folders in docs/ARCHITECTURE.md. Every step of a walk there begins with a file below src/.
"""

import fnmatch
import os
import pathlib
import re
import sys
import tempfile

SOURCES = (".h", ".hpp", ".cpp", ".py", ".sh", ".cmake")
SKIPPED = {".git", "build", "__pycache__"}
MIN_STEPS = 3  # of all walks together


class Tree:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.paths = set()
        for folder, names, files in os.walk(self.root):
            names[:] = [name for name in names if name not in SKIPPED]
            base = os.path.relpath(folder, self.root)
            for name in names + files:
                self.paths.add(os.path.normpath(os.path.join(base, name)))
        self.names = {os.path.basename(path) for path in self.paths}
        self.top = {path for path in self.paths if "/" not in path and (self.root / path).is_dir()}
        self.parts = {os.path.basename(path) for path in self.paths
                      if os.path.dirname(path) == "src" and (self.root / path).is_dir()} | {"moeflux"}

    def has(self, path):
        if "*" in path:
            return bool(fnmatch.filter(self.paths, path))
        return path in self.paths


def expanded(text):
    """`a.{h,cpp}` is `a.h` and `a.cpp`."""
    match = re.match(r"(.*)\{([^{}]*)\}(.*)$", text)
    return [match[1] + each + match[3] for each in match[2].split(",")] if match else [text]


def missing(tree, text):
    """Whether the text names a file, and there is none of that name."""
    name = text.rstrip("/")
    first, ends_like_source = name.split("/")[0], name.endswith(SOURCES)
    if not re.fullmatch(r"[\w./*-]+", name) or name.startswith("/"):
        return False
    if "/" not in text:
        return ends_like_source and not fnmatch.filter(tree.names, name)
    if first in tree.top and (first not in tree.parts or tree.has(name)):
        return not tree.has(name)
    if first in tree.parts and (ends_like_source or text.endswith("/")):
        return not any(tree.has(f"{base}/{name}") for base in ("src", "include"))
    # Neither from the root nor from src/: the end of a path.
    return ends_like_source and not fnmatch.filter(tree.paths, "*/" + name)


def problems(tree, document):
    text = (tree.root / document).read_text()
    text = re.sub(r"^```.*?^```", lambda m: "\n" * m.group().count("\n"), text, flags=re.S | re.M)
    folder = os.path.dirname(document)
    for number, line in enumerate(text.split("\n"), 1):
        for code in re.findall(r"`([^`]+)`", line):
            word = code.split()[0] if code.split() else ""
            for name in expanded(word):
                if missing(tree, name):
                    yield f"{document}:{number}: there is no {name}"
        for link in re.findall(r"\]\(([^)#\s]+)", line):
            if "://" in link or link.startswith("mailto:"):
                continue
            if not tree.has(os.path.normpath(os.path.join(folder, link))):
                yield f"{document}:{number}: there is no {link}"


def steps_of(text):
    """(line, step) for the numbered steps of the walks."""
    in_walks = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("## "):
            in_walks = line.startswith("## Walks")
        if in_walks and re.match(r"\d+\. ", line):
            yield number, line


def architecture_problems(tree, document):
    text = (tree.root / document).read_text()
    steps = list(steps_of(text))
    if len(steps) < MIN_STEPS:
        yield f"{document}: the walks have {len(steps)} steps, fewer than {MIN_STEPS}"
    for number, step in steps:
        match = re.match(r"\d+\. `([^`]+)` \w", step)
        if not match or not tree.has(f"src/{match[1]}") or not match[1].endswith(SOURCES):
            yield f"{document}:{number}: this step does not begin with a file below src/: {step}"
    folders = set(re.findall(r"^(src/[\w/]+)/  ", text, re.M)) | set(re.findall(r" (text/\w+)/:", text))
    for folder in sorted(folders):
        if not tree.has(folder) and not tree.has(f"src/{folder}"):
            yield f"{document}: there is no folder {folder}"
    for folder in sorted(tree.parts - {"moeflux"}):
        if f"src/{folder}" not in folders:
            yield f"{document}: the table of folders lacks src/{folder}"


def documents(tree):
    yield from ("README.md", "CONTRIBUTING.md", "bench/PROTOCOL.md")
    yield from sorted(path for path in tree.paths if fnmatch.fnmatch(path, "docs/*.md"))


def check(root):
    tree = Tree(root)
    found = [each for document in documents(tree) for each in problems(tree, document)]
    found += architecture_problems(tree, "docs/ARCHITECTURE.md")
    for each in found:
        print(each)
    print(f"{len(found)} named files are missing")
    return 1 if found else 0


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name in ("src/engine/engine.cpp", "src/engine/engine.h", "include/moeflux/moeflux.h",
                     "docs/A.md", "tests/engine/x_test.cpp"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).touch()
        tree = Tree(root)
        for good in ("src/engine/engine.cpp", "engine/engine.h", "engine.h", "moeflux/moeflux.h", "engine/",
                     "src/engine", "src/engine/", "tests/engine/*_test.cpp", "engine.*", "/v1/models",
                     "config.json", "text/event-stream", "moeflux/prefixes", "a/b"):
            assert not missing(tree, good), good
        for bad in ("src/engine/other.cpp", "engine/other.h", "other.h", "moeflux/other.h", "tests/io/",
                    "src/io", "tests/io/*_test.cpp", "other_*.h", "engine/rooms/", "cpu/other.cpp"):
            assert missing(tree, bad), bad
        assert expanded("a.{h,cpp}") == ["a.h", "a.cpp"]
        (root / "docs/A.md").write_text("`engine.{h,cpp}` [b](B.md) [c](../src/engine/engine.h#x)\n"
                                        "```\n`gone.h`\n```\n`gone.h --option` [w](https://w.org/x.md)\n")
        found = list(problems(tree, "docs/A.md"))
        assert found == ["docs/A.md:1: there is no B.md", "docs/A.md:5: there is no gone.h"], found

        good_walk = "```\nsrc/engine/  x\n```\n## Walks\n" + "1. `engine/engine.cpp` opens it.\n" * MIN_STEPS
        for text, expected in (
                (good_walk, []),
                (good_walk + "4. `engine/gone.cpp` goes.\n", ["docs/A.md:8: this step"]),
                (good_walk + "4. `moeflux/moeflux.h` is no file of src.\n", ["docs/A.md:8: this step"]),
                (good_walk + "4. It names no file.\n", ["docs/A.md:8: this step"]),
                (good_walk + "## Else\n1. It names no file.\n", []),
                (good_walk.replace("## Walks", "## Else"), ["docs/A.md: the walks have 0 steps"]),
                (good_walk.replace("src/engine/", "src/io/"),
                 ["docs/A.md: there is no folder src/io", "docs/A.md: the table of folders lacks src/engine"])):
            (root / "docs/A.md").write_text(text)
            found = list(architecture_problems(tree, "docs/A.md"))
            assert len(found) == len(expected), (text, found)
            assert all(f.startswith(e) for f, e in zip(found, expected)), (text, found)
    print("self-test passed")
    return 0


if __name__ == "__main__":
    sys.exit(self_test() if sys.argv[1:] == ["--self-test"] else check(sys.argv[1]))
