#!/usr/bin/env python3
"""Asks a model one question and prints the answer as it comes. Needs nothing but the shared library.

  ask.py [--library libmoeflux.so.0] MODEL QUESTION
"""

import argparse
import ctypes
import sys
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t,
                    c_uint64, c_void_p, sizeof)

PROGRESS = CFUNCTYPE(c_int, c_uint64, c_uint64, c_void_p)
TEXT = CFUNCTYPE(c_int, POINTER(ctypes.c_char), c_size_t, c_void_p)


class ModelParams(Structure):
    _fields_ = [("struct_size", c_size_t)] + \
        [(name, c_char_p) for name in ("path", "weights_path", "manifest_path", "vocab_path", "experts_dir")] + \
        [(name, c_int32) for name in ("experts_per_token", "use_2bit", "n_threads", "max_sequences", "max_checkpoints",
                                      "precision", "kv_type", "lookahead", "preload", "elastic", "max_drafts")] + \
        [("context_length", c_int64), ("max_batch", c_int64), ("memory_bytes", c_uint64)] + \
        [(name, c_char_p) for name in ("cpu_isa", "cache_policy", "profile_directory", "prefix_store")] + \
        [("prefix_store_bytes", c_uint64), ("progress", PROGRESS), ("progress_user", c_void_p)]


class ChatParams(Structure):
    _fields_ = [("struct_size", c_size_t), ("messages", c_void_p), ("n_messages", c_size_t)] + \
        [(name, c_char_p) for name in ("messages_json", "tools_json", "documents_json", "variables_json")] + \
        [("no_generation_prompt", c_int32)]


class GenerateParams(Structure):
    _fields_ = [("struct_size", c_size_t), ("sampling", c_void_p), ("max_tokens", c_int64),
                ("stop", POINTER(c_char_p)), ("n_stop", c_size_t), ("ignore_end", c_int32), ("no_drafts", c_int32),
                ("on_text", TEXT), ("user", c_void_p), ("tokens", POINTER(c_int32)), ("tokens_capacity", c_size_t)]


class GenerateResult(Structure):
    _fields_ = [("struct_size", c_size_t), ("stop_reason", c_int32), ("n_prompt", c_size_t), ("n_tokens", c_size_t),
                ("n_drafted", c_size_t), ("n_accepted", c_size_t), ("prefill_seconds", c_double), ("decode_seconds", c_double)]


class MoefluxError(Exception):
    pass


class Moeflux:
    """A model and a context on it."""

    def __init__(self, library, path, context_length=512):
        self.lib = ctypes.CDLL(library)
        for name in ("mf_model_open", "mf_context_new"):
            getattr(self.lib, name).restype = c_void_p
        self.lib.mf_last_error_message.restype = c_char_p
        params = self.defaults(ModelParams, self.lib.mf_model_params_init)
        params.path = path.encode()
        params.context_length = context_length
        self.ctx = None
        self.model = c_void_p(self.need(self.lib.mf_model_open(byref(params))))
        self.ctx = c_void_p(self.need(self.lib.mf_context_new(self.model, None)))

    def close(self):
        self.lib.mf_context_free(self.ctx)
        self.lib.mf_model_close(self.model)

    def error(self):
        return MoefluxError(self.lib.mf_last_error_message().decode())

    def need(self, pointer):
        if not pointer:
            raise self.error()
        return pointer

    def check(self, status):
        if status != 0:
            raise self.error()

    @staticmethod
    def defaults(kind, init):
        params = kind()
        init(byref(params), c_size_t(sizeof(params)))
        return params

    def encode(self, messages_json, variables_json=b"{}"):
        chat = self.defaults(ChatParams, self.lib.mf_chat_params_init)
        chat.messages_json = messages_json
        chat.variables_json = variables_json
        n = c_size_t()
        self.lib.mf_tokenize_chat(self.model, byref(chat), None, c_size_t(0), byref(n))
        tokens = (c_int32 * n.value)()
        self.check(self.lib.mf_tokenize_chat(self.model, byref(chat), tokens, n, byref(n)))
        return tokens

    def generate(self, prompt, on_text):
        """on_text gets bytes: pieces end at whole characters. Returns how many tokens the answer has."""
        def receive(text, n_bytes, _):
            on_text(ctypes.string_at(text, n_bytes))
            return 0
        params = self.defaults(GenerateParams, self.lib.mf_generate_params_init)
        params.on_text = TEXT(receive)
        result = GenerateResult(struct_size=sizeof(GenerateResult))
        self.check(self.lib.mf_generate(self.ctx, c_int(0), prompt, c_size_t(len(prompt)), byref(params),
                                        byref(result)))
        return result.n_tokens


def main():
    import json
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", default="libmoeflux.so.0")
    parser.add_argument("model")
    parser.add_argument("question")
    args = parser.parse_args()
    try:
        engine = Moeflux(args.library, args.model)
        messages = json.dumps([{"role": "user", "content": args.question}]).encode()
        prompt = engine.encode(messages, b'{"enable_thinking": false}')

        def show(text):
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
        engine.generate(prompt, show)
        print(flush=True)
        engine.close()
    except MoefluxError as error:
        print(f"ask.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
