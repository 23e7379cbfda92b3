#!/usr/bin/env python3
"""A clone stays small: the files that git tracks sum to less than the limit.

  check_tree_size.py ROOT

Says SKIP where there is no git or no checkout, as in a source archive.
"""

import os
import subprocess
import sys

LIMIT_MB = 58
N_SHOWN = 8


def tracked_files(root):
    """Paths of the checkout that `root` is the top of, or None."""
    try:
        top = subprocess.run(["git", "-C", root, "rev-parse", "--show-prefix"], capture_output=True, text=True)
        listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    if top.returncode != 0 or top.stdout.strip() or listed.returncode != 0 or not listed.stdout:
        return None
    return listed.stdout.rstrip("\0").split("\0")


def main():
    root = sys.argv[1]
    files = tracked_files(root)
    if files is None:
        print(f"SKIP: {root} is not the top of a git checkout, or git is not on this machine")
        sys.exit(77)
    # A file deleted but not yet committed has no size.
    sizes = {name: os.lstat(os.path.join(root, name)).st_size for name in files if os.path.lexists(os.path.join(root, name))}
    total = sum(sizes.values())
    print(f"{len(sizes)} tracked files, {total / 1e6:.1f} MB of {LIMIT_MB}")
    if total >= LIMIT_MB * 1_000_000:
        largest = sorted(sizes.items(), key=lambda item: -item[1])[:N_SHOWN]
        sys.exit("too large for a clone; the largest files:\n  " + "\n  ".join(f"{size:>10} {name}" for name, size in largest))


main()
