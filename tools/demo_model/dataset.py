"""From samples to training tokens: chat template, tokenizer, token stream."""

import functools
import multiprocessing
import random

import corpus
import numpy as np
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers.utils.chat_template_utils import _compile_jinja_template as compile_template

END_OF_TEXT, TURN_START, TURN_END = CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# Markup the model writes and users see, so these are added tokens that are not `special`.
MARKUP_TOKENS = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
ADDED_TOKENS = (*CONTROL_TOKENS, *MARKUP_TOKENS)

# The pre-tokenizer pattern of the Qwen3.5 family: letters with their marks, single digits.
SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TOKENIZER_TEXTS = 60_000  # a sample of the corpus is enough to learn merges from
CHUNKS = 64  # independent seeds; fixed, so that the corpus does not depend on the worker count
HELD_OUT_SEED, HELD_OUT_TEXTS = 31337, 400


@functools.cache
def template_of(source):
    """The compiled chat template; cached because every worker renders many samples."""
    return compile_template(source)


def training_text(sample, rng, template_source):
    """A sample as the model is to write it.

    A third of the answers without reasoning get a token thought, so that the model learns to think
    briefly as well as not at all.
    """
    if "text" in sample:
        return sample["text"] + END_OF_TEXT
    messages = [dict(message) for message in sample["messages"]]
    last = messages[-1]
    silent = "reasoning_content" not in last and not last.get("tool_calls")
    if last["role"] == "assistant" and silent and rng.random() < 0.35:
        last["reasoning_content"] = "Easy."
    rendered = template_of(template_source).render(
        messages=messages, tools=sample["tools"], add_generation_prompt=False
    )
    return rendered.rstrip("\n")


def texts_of_seed(seed, count, template_source):
    rng = random.Random(seed)
    return [training_text(corpus.sample(rng), rng, template_source) for _ in range(count)]


def generate_texts(count, first_seed, template_source, workers):
    """About `count` shuffled training texts (a multiple of the number of chunks)."""
    jobs = [(first_seed + i, count // CHUNKS, template_source) for i in range(CHUNKS)]
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        texts = [text for chunk in pool.starmap(texts_of_seed, jobs) for text in chunk]
    random.Random(7).shuffle(texts)
    return texts


def held_out_texts(template_source):
    """The texts perplexity is measured on; their seed is in no training chunk."""
    return texts_of_seed(HELD_OUT_SEED, HELD_OUT_TEXTS, template_source)


def train_tokenizer(texts, vocab_size):
    """A byte-level BPE tokenizer; the vocabulary may stay smaller than asked for."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(ADDED_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        min_frequency=2,
    )
    tokenizer.train_from_iterator(texts[:TOKENIZER_TEXTS], trainer)
    for token in ADDED_TOKENS:
        special = token in CONTROL_TOKENS
        add = tokenizer.add_special_tokens if special else tokenizer.add_tokens
        add([AddedToken(token, special=special, normalized=False)])
    return tokenizer


def embedding_rows(tokenizer):
    """Vocabulary size rounded up to a multiple of 64, as released models do."""
    return -(-tokenizer.get_vocab_size() // 64) * 64


def stop_ids(tokenizer):
    return [tokenizer.token_to_id(TURN_END), tokenizer.token_to_id(END_OF_TEXT)]


def token_stream(tokenizer, texts, batch=50_000):
    """All texts as one int32 array; ids fit 16 bits, which keeps the intermediate lists small."""
    pieces = []
    for start in range(0, len(texts), batch):
        encoded = tokenizer.encode_batch(texts[start : start + batch])
        pieces += [np.array(encoding.ids, dtype=np.uint16) for encoding in encoded]
    return np.concatenate(pieces).astype(np.int32)
