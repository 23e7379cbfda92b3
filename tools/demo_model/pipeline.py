"""The steps around training that both demo models share: options, data, export."""

import argparse
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from dataset import held_out_texts
from evaluation import (
    collect_answers,
    golden_of_prompts,
    measure_perplexity,
    use_exact_float32,
)
from mlx_checkpoint import write_json
from safetensors.torch import save_file

BUNDLED_DEMO = Path(__file__).resolve().parents[2] / "models" / "demo"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
)
# Fields transformers writes that say nothing about the architecture.
CONFIG_NOISE = (
    "_name_or_path",
    "architectures",
    "chunk_size_feed_forward",
    "dtype",
    "id2label",
    "is_encoder_decoder",
    "label2id",
    "output_attentions",
    "output_hidden_states",
    "problem_type",
    "return_dict",
    "torch_dtype",
    "transformers_version",
)


def make_parser(description, minutes, samples, rate, answers):
    """The options of both trainers; the defaults differ."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for everything written")
    parser.add_argument("--minutes", type=float, default=minutes, help="training time")
    parser.add_argument("--samples", type=int, default=samples, help="corpus samples")
    parser.add_argument("--sequence", type=int, default=512, help="tokens per window")
    parser.add_argument("--batch", type=int, default=96, help="windows per step")
    parser.add_argument("--rate", type=float, default=rate, help="peak learning rate")
    parser.add_argument("--answers", type=int, default=answers, help="chats to answer at the end")
    parser.add_argument(
        "--stage", choices=("both", "train", "export"), default="both", help="what to do"
    )
    parser.add_argument("--device", default="cuda", help="torch device")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="corpus processes")
    parser.add_argument("--eager", action="store_true", help="do not compile the fast layers")
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="tiny model on the CPU: tests the steps, learns nothing",
    )
    parser.add_argument(
        "--template",
        type=Path,
        default=BUNDLED_DEMO / "chat_template.jinja",
        help="chat template of the model",
    )
    return parser


def parse(parser):
    """Parsed options; --smoke overrides the sizes."""
    options = parser.parse_args()
    if options.smoke:
        options.device, options.eager = "cpu", True
        options.minutes, options.samples, options.answers = 0.05, 1280, 4
        options.sequence, options.batch = 64, 2
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def plain_config(config):
    """A transformers config as a dict without the noise."""
    fields = json.loads(config.to_json_string(use_diff=False))
    return {name: value for name, value in fields.items() if name not in CONFIG_NOISE}


def copy_tokenizer(source, folder):
    for name in TOKENIZER_FILES:
        shutil.copyfile(Path(source) / name, Path(folder) / name)


@dataclass(frozen=True)
class EvaluationPlan:
    """Which chats are asked, and which of them become goldens (every `golden_stride`-th)."""

    seed: int
    may_think: Callable
    golden_stride: int
    golden_count: int


def evaluate(plan, model, tokenizer, template, options, log, draft_logits=None, extra_report=None):
    """Write answers.jsonl, golden.safetensors, heldout.json and report.json into options.out."""
    use_exact_float32()
    rows, accuracy = collect_answers(
        model, tokenizer, template, plan.seed, options.answers, plan.may_think, log
    )
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (options.out / "answers.jsonl").write_text("".join(lines))
    chosen = rows[:: plan.golden_stride][: plan.golden_count]
    golden = golden_of_prompts(model, [row["prompt_ids"] for row in chosen], draft_logits)
    save_file(golden, options.out / "golden.safetensors")
    texts = held_out_texts(template)[: 4 if options.smoke else None]
    (options.out / "heldout.json").write_text(json.dumps(texts, ensure_ascii=False))
    report = measure_perplexity(model, tokenizer, texts, draft_logits)
    report.update(accuracy=accuracy, **(extra_report or {}))
    write_json(options.out / "report.json", report)
    log("perplexity", report["perplexity"], "MTP agreement", report.get("mtp_agreement"))
