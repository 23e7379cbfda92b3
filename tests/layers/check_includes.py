#!/usr/bin/env python3
"""Checks the rules that keep the source tree in layers.

  check_includes.py SRC      checks the tree, prints every violation, exits with 1 if there is one
  check_includes.py SRC DOC  also checks that the table in DOC is the one here
  check_includes.py --self-test

Rules: a folder of src/ includes only the folders the table allows (docs/ARCHITECTURE.md has the same
table); a header has `#pragma once` and opens with a comment; a file has at most 800 lines; only the
command line prints or exits.
"""

import pathlib
import re
import sys
import tempfile

# Folder -> folders (or single headers) it may include, besides itself.
ALLOWED = {
    "base": [],
    "quant": ["base"],
    "model": ["base", "quant"],
    "io": ["base"],
    "text/jinja": ["base", "text/chat/marked_text.h"],
    "text/grammar": ["base"],
    "text": ["base", "text/jinja"],
    "source": ["base", "quant", "model"],
    "hub": ["base", "source"],
    "families": ["base", "model", "source", "text"],
    "backends": ["base", "quant", "model"],
    "experts": ["base", "quant", "model", "source", "io", "backends"],
    "runtime": ["base", "quant", "model", "io", "text/grammar", "source", "backends", "experts"],
    "engine": ["base", "quant", "model", "io", "text", "text/jinja", "source", "families", "backends", "experts",
               "runtime"],
    "convert": ["base", "quant", "model", "source", "families"],
    "server": ["base", "text", "text/grammar", "hub", "engine", "runtime/sampling/grammar_constraint.h",
               "runtime/sampling/log_probabilities.h", "runtime/sampling/token_constraint.h",
               "runtime/sampling/sampling_params.h"],
    "cli": ["base", "quant", "model", "io", "text", "text/jinja", "source", "hub", "families", "backends", "experts",
            "runtime", "engine", "convert", "server"],
    "capi": ["base", "source", "text", "runtime", "engine"],
}
MAY_PRINT = {"cli"}
MAX_LINES, MANY_LINES = 800, 500

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
PRINTS = re.compile(r"\bstd::(cout|cerr|clog)\b|(?<!\w)(printf|fprintf|puts|putchar|exit|_exit|quick_exit|abort)\s*\(")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def folder_of(path):
    """The folder of the table that a path below src/ belongs to: the longest that matches."""
    names = [name for name in ALLOWED if str(path).startswith(name + "/")]
    return max(names, key=len) if names else None


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def check_include(folder, included):
    target = folder_of(pathlib.PurePosixPath(included))
    if target is None:
        return f'includes "{included}", which is in no folder of the table'
    if target == folder or target in ALLOWED[folder] or included in ALLOWED[folder]:
        return None
    return f'includes "{included}": {folder} may include only {", ".join(ALLOWED[folder]) or "itself"}'


def check_file(src, path):
    """Yields (line, message) for every rule the file breaks."""
    relative = path.relative_to(src)
    folder = folder_of(relative)
    if folder is None:
        yield 1, "lies in no folder of the table"
        return
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        yield len(lines), f"has {len(lines)} lines, more than {MAX_LINES}"
    if path.suffix == ".h":
        if "#pragma once" not in lines:
            yield 1, "has no #pragma once"
        if not text.startswith("//"):
            yield 1, "does not open with a comment that says what it is"
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        message = check_include(folder, match.group(1)) if match else None
        if message:
            yield number, message
    if folder not in MAY_PRINT:
        for number, line in enumerate(without_comments(text).splitlines(), 1):
            match = PRINTS.search(STRING.sub('""', line))
            if match:
                yield number, f"prints or exits ({match.group().strip('( ')}): only the command line may"


def check_tree(src):
    violations, long_files, count = [], [], 0
    for path in sorted(src.rglob("*")):
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh", ".inc"}:
            continue
        count += 1
        violations += [f"{path}:{line}: {message}" for line, message in check_file(src, path)]
        n_lines = len(path.read_text(encoding="utf-8").splitlines())
        if MANY_LINES < n_lines <= MAX_LINES:
            long_files.append(f"{path}: {n_lines} lines; is it one thing?")
    return violations, long_files, count


def check_document(src, document):
    """Yields a message for every row of the document's table that differs from ours."""
    rows = dict(re.findall(r"^\| *([a-z]+) *\| *([a-z ]*?) *\|$", document.read_text(encoding="utf-8"), flags=re.M))
    top = [name for name in ALLOWED if "/" not in name]
    for folder in top:
        if folder not in rows:
            if (src / folder).is_dir():
                yield f"{document}: the table has no row for {folder}"
            continue
        ours = {name for name in ALLOWED[folder] if "/" not in name}
        above = set(top[:top.index(folder)])
        theirs = {name for name in above if (src / name).is_dir()} if rows[folder] == "everything above" \
            else set(rows[folder].split())
        missing = {name for name in ours ^ theirs if (src / name).is_dir()}
        if missing:
            yield f"{document}: row {folder} disagrees with check_includes.py about {', '.join(sorted(missing))}"


def check_table():
    """The table itself must not have cycles."""
    state = {}

    def visit(folder, trail):
        if state.get(folder) == "done":
            return
        assert folder not in trail, f"cycle: {' -> '.join(trail + [folder])}"
        for other in ALLOWED[folder]:
            if other in ALLOWED and {folder, other} != {"text", "text/jinja"}:
                visit(other, trail + [folder])
        state[folder] = "done"

    for folder in ALLOWED:
        visit(folder, [])


def self_test():
    good = "// What it is.\n#pragma once\n"
    cases = [  # path, content, part of the message or None
        ("base/a.h", good, None),
        ("base/a.cpp", '#include "base/a.h"\n#include <vector>\n', None),
        ("runtime/r.cpp", '#include "experts/streamer.h"\n', None),
        ("runtime/mixers/m.cpp", '#include "runtime/r.h"\n', None),
        ("text/jinja/j.cpp", '#include "text/chat/marked_text.h"\n', None),
        ("cli/main.cpp", 'int main() { std::cout << 1; exit(1); }\n', None),
        ("base/quiet.cpp", '// printf(1)\n/* exit(1) */ const char* s = "exit(1)"; int n = snprintf(b, 1, f);\n', None),
        ("base/up.cpp", '#include "quant/codec.h"\n', "base may include only itself"),
        ("quant/up.cpp", '  #  include "model/rope.h"\n', "quant may include only base"),
        ("backends/up.cpp", '#include "runtime/forward.h"\n', "backends may include only"),
        ("families/up.cpp", '#include "backends/op.h"\n', "families may include only"),
        ("text/jinja/up.cpp", '#include "text/tokenizer/tokenizer.h"\n', "text/jinja may include only"),
        ("server/up.cpp", '#include "runtime/session.h"\n', "server may include only"),
        ("base/odd.cpp", '#include "odd.h"\n', "no folder of the table"),
        ("stray/s.cpp", "\n", "lies in no folder"),
        ("base/once.h", "// What it is.\n", "no #pragma once"),
        ("base/silent.h", "#pragma once\n", "does not open with a comment"),
        ("base/long.cpp", "\n" * 801, "more than 800"),
        ("engine/cout.cpp", "void f() { std::cout << 1; }\n", "prints or exits (std::cout"),
        ("io/printf.cpp", 'void f() { printf("x"); }\n', "prints or exits (printf"),
        ("text/exit.cpp", "void f() { std::exit(1); }\n", "prints or exits (exit"),
    ]
    for name, content, expected in cases:
        with tempfile.TemporaryDirectory() as directory:
            src = pathlib.Path(directory)
            path = src / name
            path.parent.mkdir(parents=True)
            path.write_text(content)
            violations, _, count = check_tree(src)
            assert count == 1, name
            if expected is None:
                assert not violations, violations
            else:
                assert any(expected in v for v in violations), (name, violations)
    print(f"{len(cases)} cases")


def main():
    check_table()
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    if len(sys.argv) not in (2, 3):
        print(__doc__)
        return 2
    src = pathlib.Path(sys.argv[1])
    violations, long_files, count = check_tree(src)
    if len(sys.argv) == 3:
        violations += check_document(src, pathlib.Path(sys.argv[2]))
    for line in violations + long_files:
        print(line)
    print(f"{count} files, {len(violations)} violations")
    return 1 if violations or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
