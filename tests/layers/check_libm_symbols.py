#!/usr/bin/env python3
"""Logits have the same bits with every C library: what computes them calls none of its rounded functions.

  check_libm_symbols.py NM ARCHIVE...

IEEE fixes every bit of sqrt, fma, floor and their like. exp, log, sin, pow and the rest differ between libraries, versions
and processors; base/portable_math.h has those that a model needs.
"""

import re
import subprocess
import sys

ROUNDED = re.compile(
    r"^(a?(sin|cos|tan)h?|atan2|sincos|exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|cbrt|hypot|erfc?|[lt]gamma)[fl]?(@.*)?$")


def main():
    nm, *archives = sys.argv[1:]
    found = []
    for archive in archives:
        run = subprocess.run([nm, "--undefined-only", archive], capture_output=True, text=True, check=True)
        current, n_symbols = None, 0
        for line in run.stdout.splitlines():
            if line.endswith(":"):
                current = line[:-1]
            elif line.strip():
                n_symbols += 1
                name = line.split()[-1]
                if ROUNDED.match(name):
                    found.append(f"{archive}({current}): {name}")
        if n_symbols == 0:
            sys.exit(f"{archive}: no undefined symbol at all; is this the right file?")
    if found:
        sys.exit("functions of the C library whose bits differ between machines (use base/portable_math.h):\n  " + "\n  ".join(found))
    print(f"{len(archives)} libraries are clean")


main()
