#!/usr/bin/env python3
"""Installs the build into a fresh prefix and uses it as a stranger would: the examples are built against the prefix
alone (pkg-config for C, shared and static; find_package for C++; ctypes for Python) and answer with the bundled model.

  check_install.py --cmake CMAKE --build DIR --source DIR --cc CC --cxx CXX [--memcheck]

Exits with 77, and says why, when a tool is missing.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

QUESTION, ANSWER = "What is 12 + 30?", "12 + 30 = 42"
# Worth keeping for later: shorter ones are read again faster than they are written.
LONG_QUESTION = "Reverse this list: " + ", ".join(["bread, ring, pie, bear, house, cat, dog, sun"] * 6) + "."


def skip(why):
    print(f"SKIP: {why}")
    sys.exit(77)


def run(command, **kwargs):
    """Runs it; on failure shows what it said and ends."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **kwargs)
    if done.returncode != 0:
        print("$", " ".join(str(word) for word in command))
        print(done.stdout + done.stderr)
        sys.exit(f"exit code {done.returncode}")
    return done.stdout


def expect(what, got, expected):
    if got != expected:
        sys.exit(f"{what}: expected {expected!r}, got {got!r}")
    print(f"ok: {what}")


class Prefix:
    def __init__(self, args, path):
        self.args, self.path = args, path
        run([args.cmake, "--install", args.build, "--prefix", path])
        self.libdir = next(path.glob("lib*/**/libmoeflux.so")).parent
        self.model = path / "share/moeflux/models/demo"
        self.env = dict(os.environ, PKG_CONFIG_PATH=str(self.libdir / "pkgconfig"),
                        LD_LIBRARY_PATH=str(self.libdir))
        self.examples = args.source / "examples"

    def pkg_config(self, *words):
        return run(["pkg-config", *words, "moeflux"], env=self.env).split()

    def files(self):
        """Everything that must be there, and nothing that names the build."""
        for name in ("bin/moeflux", "include/moeflux/moeflux.h", "include/moeflux/moeflux.hpp",
                     "share/man/man1/moeflux.1", "share/man/man1/moeflux-run.1",
                     "share/bash-completion/completions/moeflux", "share/zsh/site-functions/_moeflux",
                     "share/fish/vendor_completions.d/moeflux.fish", "share/doc/moeflux/LICENSE"):
            if not (self.path / name).is_file():
                sys.exit(f"{name} is not installed")
        for name in ("libmoeflux.so", "libmoeflux.so.0", "libmoeflux.a", "pkgconfig/moeflux.pc",
                     "cmake/moeflux/moefluxConfig.cmake", "cmake/moeflux/moefluxConfigVersion.cmake"):
            if not (self.libdir / name).exists():
                sys.exit(f"{name} is not installed")
        for pattern in ("pkgconfig/*", "cmake/moeflux/*"):
            for file in self.libdir.glob(pattern):
                for place in (self.args.build, self.args.source):
                    if str(place) in file.read_text(encoding="utf-8"):
                        sys.exit(f"{file.name} names {place}")
        unit = (self.path / "share/systemd/user/moeflux.service").read_text(encoding="utf-8")
        expect("the unit for users", [line for line in unit.splitlines() if line.startswith("ExecStart=")],
               [f"ExecStart={self.path}/bin/moeflux serve"])
        print("ok: files")

    def program(self):
        out = run([self.path / "bin/moeflux", "run", "--no-think", QUESTION], env=dict(self.env, MOEFLUX_MODEL=""))
        expect("the program answers with the bundled model", out, ANSWER + "\n")

    def c_program(self, name, output, *libs):
        flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O1", *self.pkg_config("--cflags")]
        run([self.args.cc, *flags, self.examples / "c" / f"{name}.c", "-o", output, *libs])

    def c_programs(self, work):
        for name in ("ask", "branch"):
            self.c_program(name, work / name, *self.pkg_config("--libs"))
        expect("C, shared", run([work / "ask", self.model, QUESTION], env=self.env), ANSWER + "\n")
        lines = run([work / "branch", self.model, "Once upon a time", work / "state"], env=self.env).splitlines()
        expect("C, branches", (len(lines), lines[0] == lines[2], lines[0] != lines[1]), (3, True, True))

        libs = [word for word in self.pkg_config("--static", "--libs") if word != "-lmoeflux"]
        self.c_program("ask", work / "ask_static", self.libdir / "libmoeflux.a", *libs)
        needed = run(["readelf", "-d", work / "ask_static"])
        expect("C, static, needs no libmoeflux.so", "libmoeflux" in needed, False)
        expect("C, static", run([work / "ask_static", self.model, QUESTION]), ANSWER + "\n")
        broken = subprocess.run([work / "ask", work, QUESTION], env=self.env, capture_output=True, text=True)
        expect("C, no model", (broken.returncode, "holds no model" in broken.stderr), (1, True))

    def memcheck(self, work):
        """Valgrind shows a processor without AVX-512, so this also runs the program on one of those."""
        for name, arguments in (("ask", [QUESTION]), ("branch", ["Hi", work / "state"])):
            self.c_program(name, work / name, *self.pkg_config("--libs"))
            done = subprocess.run(["valgrind", "--quiet", "--leak-check=full", "--error-exitcode=9", work / name,
                                   self.model, *arguments], env=self.env, capture_output=True, text=True)
            if done.returncode != 0:
                print(done.stderr)
            expect(f"valgrind {name}", done.returncode, 0)

    def cpp_program(self, work):
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        for kind, component in (("shared", ""), ("static", "COMPONENTS static")):
            project = work / kind
            shutil.copytree(self.examples / "cpp", project)
            if component:
                lists = project / "CMakeLists.txt"
                text = lists.read_text(encoding="utf-8").replace("CONFIG REQUIRED", f"CONFIG REQUIRED {component}")
                lists.write_text(text.replace("PRIVATE moeflux::moeflux", "PRIVATE moeflux::moeflux_static"),
                                 encoding="utf-8")
            run([self.args.cmake, "-S", project, "-B", project / "build", *generator,
                 f"-DCMAKE_PREFIX_PATH={self.path}", f"-DCMAKE_CXX_COMPILER={self.args.cxx}",
                 "-DCMAKE_CXX_FLAGS=-Werror"])
            run([self.args.cmake, "--build", project / "build"])
            out = run([project / "build/chat", self.model], input=f"{QUESTION}\nWhat is 46 + 98?\n")
            expect(f"C++, {kind}", out, ANSWER + "\n46 + 98 = 144\n")
        # The second run of the program finds what the first has read.
        chat = [work / "shared/build/chat", self.model, work / "store"]
        known = [subprocess.run(chat, input=LONG_QUESTION + "\n", capture_output=True, text=True, check=True).stderr
                 for _ in range(2)]
        expect("C++, prefix store", [line.startswith("[0 tokens were known") for line in known], [True, False])

    def python_program(self):
        out = run([sys.executable, self.examples / "python/ask.py", "--library", self.libdir / "libmoeflux.so.0",
                   self.model, QUESTION])
        expect("Python", out, ANSWER + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--source", required=True, type=pathlib.Path)
    parser.add_argument("--cc", required=True)
    parser.add_argument("--cxx", required=True)
    parser.add_argument("--memcheck", action="store_true")
    args = parser.parse_args()
    for tool in (args.cc, args.cxx, "pkg-config", "readelf") + (("valgrind",) if args.memcheck else ()):
        if shutil.which(tool) is None:
            skip(f"{tool} is not on this machine")
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        prefix = Prefix(args, work / "prefix")
        if args.memcheck:
            prefix.memcheck(work)
            return
        prefix.files()
        prefix.program()
        prefix.c_programs(work)
        prefix.cpp_program(work)
        prefix.python_program()


if __name__ == "__main__":
    main()
