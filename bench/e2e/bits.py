#!/usr/bin/env python3
"""The bits of a build's logits, to show that another build computes the same ones.

  bench/e2e/bits.py --library LIBMOEFLUX.SO --out OLD.json [--probe BITS_PROBE] [--program MOEFLUX]
                    [--synth DIRECTORY ...] [--only TEXT]
  bench/e2e/bits.py --compare OLD.json NEW.json

Runs every fixture, both bundled models and the models given by --synth, in every precision and on
every instruction set of this machine, and writes a digest of every row of logits. The library is
used through its C API, so the same script serves builds that differ inside. What the C API cannot
ask for comes from two programs of the same build, which may be left out:
  --probe    bits_probe (a target of -DMOEFLUX_BUILD_BENCH=ON): several sessions in one pass, what is
             inside of a pass, rows of the MTP head
  --program  moeflux: `verify` of every fixture that has golden values
A model given by --synth is large: it gets short prompts, a long one with the best instruction set
only, and five tokens of scalar code. Where a file exists already, cases that are in it are not run again.
"""

import argparse
import array
import ctypes
import hashlib
import json
import math
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRECISIONS = {"exact": 1, "fine": 0, "fast": 2}
KV_TYPES = {"f16": 1, "bf16": 2, "q8": 3}
INSTRUCTION_SETS = ("scalar", "avx2", "avx512", "avx512vnni", "amx", "neon", "neon_dotprod")
LONG = 300  # tokens: long enough for the forms that only long prompts are computed in


class ModelParams(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + \
        [(name, ctypes.c_char_p) for name in
         ("path", "weights_path", "manifest_path", "vocab_path", "experts_dir")] + \
        [(name, ctypes.c_int32) for name in
         ("experts_per_token", "use_2bit", "n_threads", "max_sequences", "max_checkpoints",
          "precision", "kv_type", "lookahead", "preload", "elastic", "max_drafts")] + \
        [("context_length", ctypes.c_int64), ("max_batch", ctypes.c_int64),
         ("memory_bytes", ctypes.c_uint64), ("cpu_isa", ctypes.c_char_p),
         ("cache_policy", ctypes.c_char_p), ("profile_directory", ctypes.c_char_p),
         ("prefix_store", ctypes.c_char_p), ("prefix_store_bytes", ctypes.c_uint64),
         ("progress", ctypes.c_void_p), ("progress_user", ctypes.c_void_p)]


class ContextParams(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("max_sequences", ctypes.c_int32),
                ("max_checkpoints", ctypes.c_int32)]


class SamplingParams(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + \
        [(name, ctypes.c_double) for name in
         ("temperature", "top_p", "min_p", "typical_p", "repetition_penalty", "presence_penalty",
          "frequency_penalty")] + \
        [("top_k", ctypes.c_int32), ("penalty_window", ctypes.c_int32), ("seed", ctypes.c_uint64),
         ("logit_bias", ctypes.c_void_p), ("n_logit_bias", ctypes.c_size_t)]


class GenerateParams(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("sampling", ctypes.POINTER(SamplingParams)),
                ("max_tokens", ctypes.c_int64), ("stop", ctypes.c_void_p),
                ("n_stop", ctypes.c_size_t), ("ignore_end", ctypes.c_int32),
                ("no_drafts", ctypes.c_int32), ("on_text", ctypes.c_void_p),
                ("user", ctypes.c_void_p), ("tokens", ctypes.POINTER(ctypes.c_int32)),
                ("tokens_capacity", ctypes.c_size_t)]


class GenerateResult(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("stop_reason", ctypes.c_int32)] + \
        [(name, ctypes.c_size_t) for name in ("n_prompt", "n_tokens", "n_drafted", "n_accepted")] + \
        [("prefill_seconds", ctypes.c_double), ("decode_seconds", ctypes.c_double)]


class Failure(Exception):
    pass


class Library:
    def __init__(self, path):
        self.lib = lib = ctypes.CDLL(str(path))
        for name in ("mf_model_open", "mf_context_new"):
            getattr(lib, name).restype = ctypes.c_void_p
        for name in ("mf_last_error_message", "mf_version"):
            getattr(lib, name).restype = ctypes.c_char_p
        lib.mf_model_n_vocab.restype = ctypes.c_size_t
        lib.mf_seq_state_size.restype = ctypes.c_size_t
        lib.mf_seq_state_save.restype = ctypes.c_int64

    def check(self, status):
        if status != 0:
            raise Failure(self.lib.mf_last_error_message().decode())

    def open(self, path, **values):
        return Model(self, path, values)


class Model:
    """A model and one context on it, closed at the end of a `with`."""

    def __init__(self, library, path, values):
        self.library, self.lib = library, library.lib
        params = ModelParams()
        self.lib.mf_model_params_init(ctypes.byref(params), ctypes.c_size_t(ctypes.sizeof(params)))
        params.path = str(path).encode()
        params.max_sequences, params.elastic, params.max_drafts = 3, 0, 2
        for name, value in values.items():
            setattr(params, name, value.encode() if isinstance(value, str) else value)
        self.model = ctypes.c_void_p(self.lib.mf_model_open(ctypes.byref(params)))
        if not self.model:
            raise Failure(self.lib.mf_last_error_message().decode())
        context = ContextParams()
        self.lib.mf_context_params_init(ctypes.byref(context),
                                        ctypes.c_size_t(ctypes.sizeof(context)))
        context.max_sequences = 3
        self.context = ctypes.c_void_p(self.lib.mf_context_new(self.model, ctypes.byref(context)))
        if not self.context:
            raise Failure(self.lib.mf_last_error_message().decode())
        self.n_vocab = self.lib.mf_model_n_vocab(self.model)
        self.logits = (ctypes.c_float * self.n_vocab)()
        self.lengths = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lib.mf_context_free(self.context)
        self.lib.mf_model_close(self.model)

    def clear(self):
        self.lib.mf_memory_clear(self.context)
        self.lengths = {}

    def prompt(self, tokens, sequence=0):
        """Appends the tokens and returns the row of logits."""
        values = (ctypes.c_int32 * len(tokens))(*tokens)
        length = self.lengths.get(sequence, 0)
        self.library.check(self.lib.mf_eval_prompt(
            self.context, values, ctypes.c_size_t(len(tokens)), ctypes.c_size_t(length), sequence,
            self.logits))
        self.lengths[sequence] = length + len(tokens)
        return row(self.logits)

    def token(self, token, sequence=0):
        length = self.lengths.get(sequence, 0)
        self.library.check(self.lib.mf_eval_token(self.context, token, ctypes.c_size_t(length),
                                                  sequence, self.logits))
        self.lengths[sequence] = length + 1
        return row(self.logits)

    def state(self, sequence=0):
        """All that is remembered of the sequence, as one row."""
        n = self.lib.mf_seq_state_size(self.context, sequence, 3)
        buffer = ctypes.create_string_buffer(n)
        n = self.lib.mf_seq_state_save(self.context, sequence, 3, buffer, ctypes.c_size_t(n))
        if n < 0:
            raise Failure(self.lib.mf_last_error_message().decode())
        return [digest(memoryview(buffer)[:n]), n]

    def copy(self, source, to):
        self.library.check(self.lib.mf_memory_seq_cp(self.context, source, to))
        self.lengths[to] = self.lengths[source]

    def checkpoint(self, sequence=0):
        length = self.lengths[sequence]
        self.library.check(
            self.lib.mf_seq_checkpoint(self.context, sequence, ctypes.c_size_t(length)))
        return length

    def restore(self, position, sequence=0):
        self.library.check(
            self.lib.mf_seq_restore(self.context, sequence, ctypes.c_size_t(position)))
        self.lengths[sequence] = position

    def generate(self, prompt, n):
        """The tokens of a greedy answer, drafts allowed."""
        sampling = SamplingParams()
        self.lib.mf_sampling_params_init(ctypes.byref(sampling),
                                         ctypes.c_size_t(ctypes.sizeof(sampling)))
        sampling.temperature = 0
        params = GenerateParams()
        self.lib.mf_generate_params_init(ctypes.byref(params),
                                         ctypes.c_size_t(ctypes.sizeof(params)))
        tokens = (ctypes.c_int32 * n)()
        params.sampling = ctypes.pointer(sampling)
        params.max_tokens, params.ignore_end = n, 1
        params.tokens, params.tokens_capacity = tokens, n
        result = GenerateResult(struct_size=ctypes.sizeof(GenerateResult))
        values = (ctypes.c_int32 * len(prompt))(*prompt)
        self.library.check(self.lib.mf_generate(self.context, 0, values,
                                                ctypes.c_size_t(len(prompt)), ctypes.byref(params),
                                                ctypes.byref(result)))
        return list(tokens[:result.n_tokens])


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def row(logits):
    """A digest, and the sum of the values: shows how far apart two rows are."""
    values = array.array("f", bytes(logits))
    return [digest(values.tobytes()), math.fsum(values)]


def random_tokens(n, n_vocab, seed):
    state, tokens = seed, []
    for _ in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        tokens.append((state >> 33) % n_vocab)
    return tokens


# ---- Cases of the C API: functions of an open model that return rows. --------------------------


def whole(model, n, n_decode):
    """A prompt in one piece, then single tokens."""
    tokens = random_tokens(n + n_decode, model.n_vocab, 1)
    rows = [model.prompt(tokens[:n])]
    return rows + [model.token(token) for token in tokens[n:]] + [model.state()]


def pieces(model, n, sizes):
    tokens, rows = random_tokens(n, model.n_vocab, 1), []
    for size in sizes:
        rows.append(model.prompt(tokens[:size]))
        tokens = tokens[size:]
    return rows + [model.prompt(tokens), model.state()]


def single(model, n):
    return [model.token(token) for token in random_tokens(n, model.n_vocab, 1)] + [model.state()]


def interleaved(model, sizes):
    """Three sequences in turn, each in pieces of its own."""
    rows = []
    for turn, size in enumerate(sizes):
        for sequence in range(3):
            tokens = random_tokens(size + sequence, model.n_vocab, 100 * turn + sequence)
            rows.append(model.prompt(tokens, sequence))
    return rows


def back(model, n):
    """To a checkpoint and on, in a copy too."""
    tokens = random_tokens(n + 4, model.n_vocab, 7)
    rows = [model.prompt(tokens[:n])]
    position = model.checkpoint()
    rows += [model.token(token) for token in tokens[n:]]
    model.restore(position)
    rows.append(model.prompt(tokens[n:]))
    model.copy(0, 1)
    return rows + [model.token(tokens[0], 1), model.state(1)]


def answer(model, n, n_answer):
    """Greedy tokens with drafts, and the state they leave. Drafts must not change either."""
    tokens = model.generate(random_tokens(n, model.n_vocab, 11), n_answer)
    model.lengths[0] = n + len(tokens) - 1
    return [[" ".join(map(str, tokens)), len(tokens)], model.token(tokens[-1])]


def small_cases(path):
    """name, how to open, what to run. A model is opened once for cases that open it alike."""
    usual = {}
    yield "whole", usual, lambda m: whole(m, 40, 6)
    yield "long", usual, lambda m: whole(m, LONG, 2)
    yield "pieces", usual, lambda m: pieces(m, LONG, (1, 2, 7, 16, 33, 64))
    yield "single", usual, lambda m: single(m, 12)
    yield "interleaved", usual, lambda m: interleaved(m, (5, 1, 17, 40, 1))
    yield "back", usual, lambda m: back(m, 21)
    if (path / "tokenizer.json").exists():  # without one, nothing is generated
        yield "answer", usual, lambda m: answer(m, 16, 32)
    yield "passes", {"max_batch": 24}, lambda m: whole(m, LONG, 2)
    yield "one thread", {"n_threads": 1}, lambda m: whole(m, 40, 2)
    for name, value in KV_TYPES.items():
        yield f"kv {name}", {"kv_type": value}, lambda m: whole(m, 40, 4)


def large_cases(isa, best):
    usual = {"max_batch": LONG}
    if isa == "scalar":  # minutes otherwise
        yield "short", usual, lambda m: whole(m, 4, 1)
        return
    yield "whole", usual, lambda m: whole(m, 12, 2)
    yield "pieces", usual, lambda m: pieces(m, 12, (5, 1))
    if best:
        yield "interleaved", usual, lambda m: interleaved(m, (3, 1))
        yield "long", usual, lambda m: whole(m, LONG, 1)
        yield "answer", usual, lambda m: answer(m, 8, 6)


# ---- The recorder --------------------------------------------------------------------------------


class Recorder:
    def __init__(self, arguments):
        self.arguments = arguments
        self.out = pathlib.Path(arguments.out)
        self.cases = json.loads(self.out.read_text())["cases"] if self.out.exists() else {}
        self.library = Library(arguments.library)
        self.n_failed = 0
        self.sets = self.supported()

    def supported(self):
        sets = []
        for name in INSTRUCTION_SETS:
            try:
                with self.library.open(ROOT / "models/demo", context_length=64, cpu_isa=name):
                    sets.append(name)
            except Failure:
                pass
        return sets

    def wants(self, key):
        return key not in self.cases and self.arguments.only in key

    def add(self, key, rows):
        self.cases[key] = rows

    def failed(self, key, error):
        self.n_failed += 1
        print(f"FAILED  {key}: {error}", flush=True)

    def save(self):
        temporary = self.out.with_suffix(".tmp")
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(rows)}"
                           for key, rows in sorted(self.cases.items()))
        temporary.write_text('{"cases": {\n' + lines + "\n}}\n")
        temporary.replace(self.out)

    def run_cases(self, name, path, isa, precision, cases, **values):
        groups = {}
        for case, how, run in cases:
            key = f"{name} | {isa} | {precision} | {case}"
            if self.wants(key):
                groups.setdefault(tuple(how.items()), []).append((key, run))
        for how, members in groups.items():
            try:
                model = self.library.open(path, cpu_isa=isa, precision=PRECISIONS[precision],
                                          **{**values, **dict(how)})
            except Failure as error:
                self.failed(members[0][0], f"cannot be opened: {error}")
                continue
            with model:
                for key, run in members:
                    try:
                        model.clear()
                        self.add(key, run(model))
                    except Failure as error:
                        self.failed(key, error)

    def run_probe(self, name, path, isa, precision, n, memory=0):
        key = f"{name} | {isa} | {precision} | probe"
        if not self.arguments.probe or not self.wants(key):
            return
        command = [self.arguments.probe, str(path), "--isa", isa, "--precision", precision,
                   "--tokens", str(n)]
        if memory:
            command += ["--memory", str(memory)]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            self.failed(key, run.stderr.strip())
            return
        for case, rows in json.loads(run.stdout).items():
            self.add(f"{key} {case}", rows)
        self.add(key, [])

    def run_verify(self, name, path, isa, precision):
        golden = path / "golden.safetensors"
        if not self.arguments.program or not golden.exists():
            return
        for chunk in (0, 3):
            key = f"{name} | {isa} | {precision} | verify in {chunk or 'one'}"
            if not self.wants(key):
                continue
            command = [self.arguments.program, "verify", str(path), "--golden", str(golden), "--json",
                       "--no-config", "--no-profile", "-q", "--precision", precision, "--chunk",
                       str(chunk)]
            run = subprocess.run(command, capture_output=True, text=True,
                                 env={**os.environ, "MOEFLUX_CPU_ISA": isa})
            try:  # exit code 1: beyond the tolerance, which `fast` is
                checks = json.loads(run.stdout)["checks"]
            except ValueError:
                self.failed(key, run.stderr.strip())
                continue
            self.add(key, [[digest(json.dumps(check, sort_keys=True).encode()), check["max_abs"] or 0]
                           for check in checks])

    def record(self, name, path, large):
        started = time.monotonic()
        for isa in self.sets:
            best = isa == self.sets[-1]
            for precision in PRECISIONS:
                if large:
                    self.run_cases(name, path, isa, precision, large_cases(isa, best), context_length=512,
                                   memory_bytes=self.arguments.large_memory)
                    if isa != "scalar":
                        self.run_probe(name, path, isa, precision, 3, self.arguments.large_memory)
                else:
                    self.run_cases(name, path, isa, precision, small_cases(path), context_length=512)
                    self.run_probe(name, path, isa, precision, 16)
                    self.run_verify(name, path, isa, precision)
                self.save()
        print(f"{name:<28} {time.monotonic() - started:6.1f} s", flush=True)


def models(arguments):
    for path in sorted((ROOT / "tests/fixtures").iterdir()):
        if (path / "config.json").exists():
            yield f"fixtures/{path.name}", path, False
    for name in ("demo", "demo-mla"):
        yield f"models/{name}", ROOT / "models" / name, False
    for text in arguments.synth:
        path = pathlib.Path(text)
        yield f"synth/{path.name}", path, True


def compare(first, second):
    old, new = (json.loads(pathlib.Path(file).read_text())["cases"] for file in (first, second))
    different = [key for key in old if key in new and old[key] != new[key]]
    for key in different:
        if len(old[key]) != len(new[key]):
            print(f"DIFFERS {key}: {len(old[key])} rows and {len(new[key])}")
            continue
        rows = [i for i, (a, b) in enumerate(zip(old[key], new[key])) if a != b]
        a, b = old[key][rows[0]], new[key][rows[0]]
        print(f"DIFFERS {key}: {len(rows)} of {len(old[key])} rows, first {rows[0]}: sums "
              f"{a[1]} and {b[1]}")
    lacking = [("MISSING", key) for key in old if key not in new] + \
              [("NEW", key) for key in new if key not in old]
    for verdict, key in lacking:
        print(f"{verdict:<7} {key}")
    n_rows = sum(len(old[key]) for key in old if key in new)
    print(f"{len(old.keys() & new.keys())} cases, {n_rows} rows: {len(different)} cases differ, "
          f"{len(lacking)} are in one file only")
    return 1 if different or lacking else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library")
    parser.add_argument("--out")
    parser.add_argument("--probe")
    parser.add_argument("--program")
    parser.add_argument("--synth", nargs="*", default=[])
    parser.add_argument("--large-memory", type=int, default=6 * 2**30, help="bytes for a --synth model")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--compare", nargs=2, metavar=("OLD", "NEW"))
    arguments = parser.parse_args()
    if arguments.compare:
        return compare(*arguments.compare)
    if not arguments.library or not arguments.out:
        parser.error("--library and --out, or --compare, are needed")
    recorder = Recorder(arguments)
    print(f"instruction sets: {', '.join(recorder.sets)}", flush=True)
    for name, path, large in models(arguments):
        recorder.record(name, path, large)
    print(f"{len(recorder.cases)} cases, {recorder.n_failed} failed")
    return 1 if recorder.n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
