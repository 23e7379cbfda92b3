#!/usr/bin/env python3
"""What a build and its tests do not see. `make lint` runs it; CI runs a part of it after the tests.

  scripts/lint.py [--part 1/4] [--minutes 3] [--all] [--jobs N] [STEP ...]

Steps, all of them unless some are named:
  format   every file is as clang-format 14 writes it
  clang    sources compiled by themselves with clang, warnings as errors, no code generated: shows a
           missing include that compiling several files as one hides, and what g++ does not warn of
  headers  headers compiled by themselves; what is the first include of its own source, clang has seen
  asan     tests of parsers under AddressSanitizer and UBSan
  tsan     tests of threads under ThreadSanitizer

clang looks at a part of the sources (--part), headers at all that clang would not see; neither takes
more than --minutes. The files of the last commit come first, the others in an order that every commit
shuffles, so that all have their turn. --all looks at every one.
"""

import argparse
import concurrent.futures
import fractions
import hashlib
import json
import math
import os
import pathlib
import platform
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
CLANG_FORMAT = 14  # others format otherwise
PARSERS = ["base_test", "text_test", "jinja_test", "grammar_test", "source_test"]
THREADS = ["base_test", "io_test", "experts_test", "engine_scheduler_test"]
SHOWN = 20  # findings of a step; more are counted


class Findings(Exception):
    """What a step objects to, one text each."""


class Skipped(Exception):
    pass


def output_of(*command):
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return run.stdout if run.returncode == 0 else ""


def tracked(*endings):
    names = output_of("git", "ls-files", "--cached", "--others", "--exclude-standard").split("\n")
    if names == [""]:  # not a git checkout
        names = [str(path.relative_to(ROOT)) for top in ("src", "tests", "bench", "include")
                 for path in (ROOT / top).rglob("*")]
    return sorted(name for name in names if name.endswith(endings) and (ROOT / name).exists())


def part_of(names, share):
    """So many of the names: those the last commit changed come first, the others in an order that
    every commit shuffles."""
    commit = output_of("git", "rev-parse", "HEAD").strip() or str(time.time())
    changed = set(output_of("git", "diff", "--name-only", "HEAD~1").split("\n"))

    def turn(name):
        return name not in changed, hashlib.sha256((commit + name).encode()).digest()

    return sorted(names, key=turn)[:math.ceil(share * len(names))]


def in_parallel(jobs, function, items):
    """What the function returned, without what is empty."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return [result for result in pool.map(function, items) if result]


def check_in_time(options, function, names):
    """Checks the names, in this order, until the time of the step is over. Returns how many."""
    end = time.monotonic() + 60 * options.minutes
    done = []

    def check(name):
        if time.monotonic() >= end:
            return ""
        done.append(name)
        return function(name)

    if wrong := in_parallel(options.jobs, check, names):
        raise Findings(*wrong)
    return len(done)


def configure(preset, *options):
    run = subprocess.run(["cmake", "--preset", preset, *options], cwd=ROOT, capture_output=True,
                         text=True)
    if run.returncode != 0:
        raise Findings(f"cmake --preset {preset}\n{run.stdout}{run.stderr}")


class Compiler:
    """clang with the flags every source is built with."""

    def __init__(self):
        if not shutil.which("clang++"):
            raise Skipped("clang++ is not installed")
        configure("lint")
        commands = json.loads((ROOT / "build/lint/compile_commands.json").read_text())
        self.flags = {}
        for entry in commands:
            words = shlex.split(entry["command"])
            del words[words.index("-o"):words.index("-o") + 2]
            del words[words.index("-c"):words.index("-c") + 2]
            source = os.path.relpath(entry["file"], ROOT)
            if source.startswith("build"):  # written by the build, which this is not
                continue
            self.flags.setdefault(source, words + ["-fsyntax-only", "-Werror", "-Wno-unknown-warning-option"])

    def check(self, name, source, text=None, *more):
        """What clang says of the file, or of the text, with the flags of the source and more."""
        command = [*self.flags[source], *more, *(["-x", "c++", "-"] if text else [name])]
        run = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True)
        return f"{name}\n{run.stderr.strip()}" if run.returncode != 0 else ""


def first_include(source):
    for line in (ROOT / source).read_text().split("\n"):
        if match := re.match(r'#include\s+["<](.*?)[">]', line):
            return match[1]
    return ""


def check_format(options):
    tool = shutil.which(f"clang-format-{CLANG_FORMAT}") or shutil.which("clang-format") or ""
    if not tool or f"version {CLANG_FORMAT}." not in output_of(tool, "--version"):
        raise Skipped(f"clang-format {CLANG_FORMAT} is not installed")
    files = tracked(".h", ".hpp", ".cpp")

    def check(names):
        run = subprocess.run([tool, "--dry-run", "-Werror", *names], cwd=ROOT, capture_output=True,
                             text=True)
        if run.returncode == 0:
            return []
        return sorted(set(re.findall(r"^(.+?):\d+:\d+: error:", run.stderr, re.M))) or [run.stderr]

    chunks = [files[i:i + 40] for i in range(0, len(files), 40)]
    if wrong := sum(in_parallel(options.jobs, check, chunks), []):
        raise Findings(*[f"{name}: make format changes it" for name in wrong])
    return f"{len(files)} files"


def check_clang(options):
    compiler = Compiler()
    n_done = check_in_time(options, lambda name: compiler.check(name, name),
                           part_of(list(compiler.flags), options.part))
    return f"{n_done} of {len(compiler.flags)} sources"


def includers(compiler):
    """For every header as it is included, the sources that do."""
    found = {}
    for source in compiler.flags:
        for line in (ROOT / source).read_text().split("\n"):
            if match := re.match(r'#include\s+["<](.*?)[">]', line):
                found.setdefault(match[1], []).append(source)
    return found


def is_for_here(name):
    """Whether this processor has the intrinsics that a header of kernels uses."""
    return platform.machine() in ("aarch64", "arm64") or "neon" not in name


def check_headers(options):
    compiler = Compiler()
    used_by = includers(compiler)
    sources = {}  # of headers to look at: a source that has the flags they need
    for name in tracked(".h", ".hpp"):
        short = re.sub(r"^(src|tests|include)/", "", name)
        own = re.sub(r"\.h$", ".cpp", name)
        if own in compiler.flags and first_include(own) == short:
            continue  # compiling that source has shown it
        if not is_for_here(name):
            continue
        # Headers of kernels need the instruction set of a source that uses them, headers of the tests
        # the folders of the tests.
        folder = os.path.dirname(name)
        users = used_by.get(short) or [source for source in sorted(compiler.flags)
                                       if os.path.dirname(source) == folder] or list(compiler.flags)
        sources[name] = min(users, key=lambda source: source.split("/")[0] != name.split("/")[0])

    def check(name):
        # What a header defines for its includers alone is not used here.
        return compiler.check(name, sources[name], f'#include "{ROOT / name}"\n',
                              "-Wno-unused-function", "-Wno-unneeded-internal-declaration")

    n_done = check_in_time(options, check, part_of(list(sources), 1))
    return f"{n_done} of {len(sources)} headers"


def check_sanitizer(preset, targets, options):
    configure(preset)
    run = subprocess.run(["cmake", "--build", "--preset", preset, "--parallel", str(options.jobs),
                          "--target", *targets], cwd=ROOT, capture_output=True, text=True)
    if run.returncode != 0:
        raise Findings(f"building {' '.join(targets)}\n{run.stdout[-6000:]}")
    folder = ROOT / "build" / preset

    def check(target):
        log = folder / f"{target}.log"
        with open(log, "w") as file:
            code = subprocess.run([folder / target, "--gtest_brief=1"], cwd=folder, stdout=file,
                                  stderr=subprocess.STDOUT).returncode
        return f"{target}, exit code {code}; {log}\n{log.read_text()[-6000:]}" if code != 0 else ""

    if wrong := in_parallel(options.jobs, check, targets):
        raise Findings(*wrong)
    return ", ".join(targets)


STEPS = {
    "format": check_format,
    "clang": check_clang,
    "headers": check_headers,
    "asan": lambda options: check_sanitizer("lint-asan", PARSERS, options),
    "tsan": lambda options: check_sanitizer("lint-tsan", THREADS, options),
}


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_step(name, options):
    """The line of the summary, and whether all is well."""
    started, cpu = time.monotonic(), cpu_seconds()
    print(f"lint: {name} ...", flush=True)
    try:
        verdict, text = "ok", STEPS[name](options)
    except Skipped as reason:
        verdict, text = "SKIPPED", str(reason)
    except Findings as findings:
        verdict, text = "FAILED", f"{len(findings.args)} found"
        for finding in findings.args[:SHOWN]:
            print(finding)
        if len(findings.args) > SHOWN:
            print(f"... and {len(findings.args) - SHOWN} more")
    line = f"  {name:<8} {verdict:<8} {time.monotonic() - started:6.0f} s " \
           f"({cpu_seconds() - cpu:.0f} s of processor)  {text}"
    return line, verdict != "FAILED"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(STEPS))
    parser.add_argument("--part", type=fractions.Fraction, default=fractions.Fraction(1, 4))
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    if unknown := set(options.steps) - set(STEPS):
        parser.error(f"no such step: {', '.join(sorted(unknown))}")
    if options.all:
        options.part, options.minutes = 1, math.inf
    results = [run_step(name, options) for name in options.steps or STEPS]
    print("lint:")
    for line, _ in results:
        print(line)
    all_well = all(well for _, well in results)
    print("lint: all is well" if all_well else "lint: FAILED")
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
