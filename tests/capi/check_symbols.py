#!/usr/bin/env python3
"""Checks that the shared library exports exactly the symbols of a list, and the header declares them.

  check_symbols.py --nm NM --library LIB --list FILE --header FILE [--update]

A symbol that disappears breaks programs that were linked with it: removing one from the list is a change of SONAME.
"""

import argparse
import pathlib
import re
import subprocess
import sys


def exported(nm, library):
    out = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in out.splitlines() if line.split()[-2] != "A"}


def declared(header):
    text = re.sub(r"/\*.*?\*/", "", pathlib.Path(header).read_text(encoding="utf-8"), flags=re.S)
    return set(re.findall(r"MF_API[^;(]*?\b(mf_\w+)\s*\(", text))


def main():
    parser = argparse.ArgumentParser()
    for name in ("nm", "library", "list", "header"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    found = exported(args.nm, args.library)
    if args.update:
        pathlib.Path(args.list).write_text("\n".join(sorted(found)) + "\n", encoding="utf-8")
    listed = set(pathlib.Path(args.list).read_text(encoding="utf-8").split())
    failures = 0
    for what, others in ((args.list, listed), (args.header, declared(args.header))):
        for name in sorted(found ^ others):
            failures += 1
            print(f"{name}: {'exported, but not in' if name in found else 'not exported, but in'} {what}")
    print(f"{len(found)} symbols, {failures} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
