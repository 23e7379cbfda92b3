#!/usr/bin/env python3
"""Runs the unit tests of one module of tools/: run_unittest.py FOLDER MODULE.

Exits with 77, which ctest counts as skipped, when a package that the module needs is not installed.
"""

import importlib
import pathlib
import sys
import unittest

SKIPPED = 77


def main(folder, name):
    sys.dont_write_bytecode = True
    sys.path.insert(0, folder)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (pathlib.Path(folder) / f"{error.name}.py").exists():
            raise  # one of ours
        print(f"SKIP: {name} needs the Python package {error.name}")
        return SKIPPED
    result = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromModule(module))
    if result.testsRun == 0:
        print(f"{name} has no tests")
        return 1
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
