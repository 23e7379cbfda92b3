#!/usr/bin/env python3
"""Kernels of one instruction set must not reach other processors.

  check_isa_symbols.py NM ARCHIVE

A function that several files instantiate is linked once, from any of them: if one of those is compiled for AVX-512, others
may crash. So objects of a single instruction set may define only their own entry points, none of them shareable.
"""

import re
import subprocess
import sys

ISA_OBJECT = re.compile(r"_(avx\w*|amx|neon\w*)\.cpp\.o:$")
HARMLESS = {"DW.ref.__gxx_personality_v0"}  # a pointer


def main():
    nm, archive = sys.argv[1:]
    run = subprocess.run([nm, "--defined-only", "--demangle", archive], capture_output=True, text=True, check=True)
    found, seen, current = [], 0, None
    for line in run.stdout.splitlines():
        if line.endswith(":"):
            current = line[:-1] if ISA_OBJECT.search(line) else None
            seen += current is not None
        elif current and (parts := line.split(maxsplit=2)) and len(parts) == 3:
            _, kind, name = parts
            shared = kind in "WwVvu" and name not in HARMLESS
            if shared or (kind.isupper() and kind not in "WV" and not name.startswith("moeflux::cpu::")):
                found.append(f"{current}: {name}")
    if seen == 0:
        sys.exit(f"{archive}: no object of an instruction set; was a file renamed?")
    if found:
        sys.exit("these symbols leave files of one instruction set:\n  " + "\n  ".join(found))
    print(f"{seen} objects are clean")


main()
