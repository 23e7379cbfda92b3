"""Train one small tokenizer for every way that released ones split text, and record what the
`tokenizers` package makes of hard texts.

    python3 make_tokenizers.py --out ../../tests/data/tokenizers          # all
    python3 make_tokenizers.py --out ../../tests/data/tokenizers gpt2     # one
    python3 make_tokenizers.py --released FOLDER    # vectors.jsonl of FOLDER/tokenizers/*/tokenizer.json

Needs the Python package `tokenizers` (0.23 gave the stored files). Each gives NAME.tokenizer.json.xz
and NAME.vectors.jsonl.xz: one text a line with its ids (no tokens added) and what they decode to.
"""

import argparse
import json
import lzma
from collections import Counter
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

from hard_texts import hard_texts, training_lines

ENGLISH_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
KIMI_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
KIMI_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"

PATTERNS = {
    # Words take one sign before them; numbers come in threes.
    "llama3": rf"{ENGLISH_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}",
    # Digits alone; accents belong to words.
    "qwen": rf"{ENGLISH_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{SPACES}",
    # Words break before a capital; endings belong to them.
    "gpt4o": rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{ENGLISH_ENDINGS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{ENGLISH_ENDINGS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}",
    # The same, with Chinese apart.
    "kimi": rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{KIMI_UPPER}*{KIMI_LOWER}+{ENGLISH_ENDINGS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{KIMI_UPPER}+{KIMI_LOWER}*{ENGLISH_ENDINGS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}",
}

PATTERNS["glm"] = PATTERNS["llama3"]
PATTERNS["minimax"] = PATTERNS["gpt4o"]

# Three splits, one after the other.
DEEPSEEK_SPLITS = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
    "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)

BAR, GAP = "\uff5c", "\u2581"
CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TOKENS = {  # special ones, then those that are shown
    "gpt2": (("<|endoftext|>",), ()),
    "llama3": (("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|eot_id|>"), ()),
    "qwen": (CHATML, ("<tool_call>", "</tool_call>", "<think>", "</think>")),
    "gpt4o": (("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>"), ()),
    "glm": (
        ("<|endoftext|>", "[gMASK]", "<sop>", "<|user|>", "<|assistant|>", "<|observation|>"),
        ("<think>", "</think>", "<tool_call>", "<arg_key>", "</arg_key>", "/nothink"),
    ),
    "minimax": (("]~!b[", "]~b]", "[e~["), ("<minimax:tool_call>", "<think>", "</think>")),
    "kimi": (("[BOS]", "[EOS]", "<|im_user|>", "<|im_middle|>"), ("<think>",)),
    "deepseek": (
        (f"<{BAR}begin{GAP}of{GAP}sentence{BAR}>", f"<{BAR}User{BAR}>", f"<{BAR}Assistant{BAR}>"),
        (f"<{BAR}tool{GAP}sep{BAR}>", "<think>", "</think>"),
    ),
    "spm_prepend": (("<unk>", "<s>", "</s>"), ("[INST]", "[/INST]")),
    "spm_metaspace": (("<unk>", "<s>", "</s>"), ("[INST]",)),
    "spm_words": (("<unk>", "<s>", "</s>"), ()),
    "spm_replace": (("<pad>", "<eos>", "<bos>", "<unk>"), ("<|turn>", "<turn|>", "\n\n", "\t\t")),
    "neox": (("<|endoftext|>", "<|padding|>"), ("  ", "    ", "        ")),
}
NORMALIZED = ("neox",)  # their shown tokens are looked for in normalized text
TEXTS = 400
MANY_TEXTS = 2000
TESTED_WITH_MANY = (
    *("gpt4o", "glm", "minimax", "neox"),
    *("spm_prepend", "spm_metaspace", "spm_replace"),
)
WHOLE_WORDS = 100
ALPHABET = 220
SENTENCEPIECE_VOCABULARY = 1600  # others 1400


def _split(pattern):
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False)


def _byte_level(name, patterns, normalizer=None, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tail = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not patterns)
    tokenizer.pre_tokenizer = (
        pre_tokenizers.Sequence([*map(_split, patterns), tail]) if patterns else tail
    )
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return tokenizer, {"initial_alphabet": alphabet}


def _sentencepiece(name):
    """Spaces as visible signs; characters without a token fall back to bytes, or are unknown."""
    words = name == "spm_words"
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=not words, byte_fallback=not words))
    sign = GAP
    steps = [decoders.Replace(sign, " "), decoders.ByteFallback(), decoders.Fuse()]
    if words:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(sign, prepend_scheme="always", split=True)
        tokenizer.decoder = decoders.Metaspace(sign, prepend_scheme="always")
        return tokenizer, {}
    if name == "spm_replace":
        tokenizer.normalizer = normalizers.Replace(" ", sign)
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    elif name == "spm_prepend":
        spaces = [normalizers.Prepend(sign), normalizers.Replace(" ", sign)]
        tokenizer.normalizer = normalizers.Sequence(spaces)
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(sign, prepend_scheme="first", split=True)
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer, {}


def untrained(name):
    """The tokenizer without a vocabulary, and what its trainer needs."""
    if name.startswith("spm_"):
        return _sentencepiece(name)
    if name == "gpt2":
        return _byte_level(name, ())
    if name == "neox":
        return _byte_level(name, (), normalizers.NFC())
    if name == "deepseek":
        return _byte_level(name, DEEPSEEK_SPLITS, normalizers.Sequence([]))
    normalizer = normalizers.NFC() if name == "qwen" else None
    return _byte_level(name, (PATTERNS[name],), normalizer, ignore_merges=name in ("llama3", "gpt4o"))


def _training_pieces(name):
    """What the trainer reads. Without a pre-tokenizer a whole line would be one word."""
    lines = training_lines()
    if not name.startswith("spm_"):
        return lines
    # Rare characters are left to the byte tokens. The trainer's own limit breaks ties at random.
    count = Counter("".join(lines))
    known = set(sorted(count, key=lambda c: (-count[c], c))[:ALPHABET])
    lines = ["".join(c for c in line if c in known) for line in lines]
    if name in ("spm_metaspace", "spm_words"):
        return lines
    return [GAP + word for line in lines for word in line.replace("\n", " ").split(" ") if word]


def trained(name):
    tokenizer, options = untrained(name)
    special, shown = TOKENS[name]
    is_spm = name.startswith("spm_")
    has_bytes = is_spm and name != "spm_words"
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)] if has_bytes else []
    first = list(special) if is_spm else []
    trainer = trainers.BpeTrainer(
        vocab_size=SENTENCEPIECE_VOCABULARY if is_spm else 1400,
        special_tokens=first + byte_tokens,
        show_progress=False,
        **options,
    )
    normalizer = tokenizer.normalizer
    if is_spm and normalizer is not None:  # the pieces have their signs already
        tokenizer.normalizer = normalizers.Sequence([])
    tokenizer.train_from_iterator(_training_pieces(name), trainer)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    document = json.loads(tokenizer.to_str())
    # Byte tokens are plain entries of the vocabulary, not texts to look for.
    document["added_tokens"] = [t for t in document["added_tokens"] if t["content"] not in byte_tokens]
    if document["model"]["ignore_merges"]:  # words that only a look at the whole vocabulary finds
        document["model"]["merges"] = document["model"]["merges"][:-WHOLE_WORDS]
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in special])
    in_normalized = name in NORMALIZED
    tokenizer.add_tokens([AddedToken(t, normalized=in_normalized, special=False) for t in shown])
    if name in ("llama3", "spm_replace"):
        bos = special[2] if is_spm else special[0]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    return tokenizer


def vectors(tokenizer, special_tokens, **how):
    for text in hard_texts(special_tokens, **how):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        decoded = tokenizer.decode(ids, skip_special_tokens=False)
        shown = tokenizer.decode(ids, skip_special_tokens=True)
        yield {"text": text, "ids": ids, "decoded": decoded, "shown": shown}


def record_released(folder):
    """2,000 texts for each, also with the tokens that are put around a text."""
    for path in sorted((folder / "tokenizers").glob("*/tokenizer.json")):
        tokenizer = Tokenizer.from_file(str(path))
        added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        lines = [
            {**vector, "with_special": tokenizer.encode(vector["text"]).ids}
            for vector in vectors(tokenizer, added[:40], seed=7, count=MANY_TEXTS)
        ]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        path.with_name("vectors.jsonl").write_text(text)
        print(f"{path.parent.name}: {len(lines)} texts", flush=True)


def write(path, text):
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def main():
    parser = argparse.ArgumentParser(description="Train the small tokenizers of the tests.")
    parser.add_argument("--out", type=Path, help="folder for the files")
    parser.add_argument("--released", type=Path, help="folder of other tokenizers")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default all: {list(TOKENS)}")
    arguments = parser.parse_args()
    if arguments.released:
        return record_released(arguments.released)
    if not arguments.out:
        parser.error("--out or --released must be given")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or TOKENS:
        tokenizer = trained(name)
        special, shown = TOKENS[name]
        count = MANY_TEXTS if name in TESTED_WITH_MANY else TEXTS
        texts = vectors(tokenizer, special + shown, count=count)
        lines = [json.dumps(v, ensure_ascii=False) for v in texts]
        write(arguments.out / f"{name}.tokenizer.json.xz", tokenizer.to_str() + "\n")
        write(arguments.out / f"{name}.vectors.jsonl.xz", "\n".join(lines) + "\n")
        print(f"{name}: {tokenizer.get_vocab_size()} tokens, {len(lines)} texts", flush=True)


if __name__ == "__main__":
    main()
