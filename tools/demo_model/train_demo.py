"""Train and export models/demo: a qwen3_5_moe of about 32 million parameters with an MTP head.

    python3 train_demo.py --out OUT           (one NVIDIA GPU)
    python3 train_demo.py --out OUT --smoke   (CPU; tests the steps)

The tokenizer is trained along with it and serves both demo models.
"""

import contextlib

import dataset
import fast_layers
import torch
import torch.nn.functional as F
from mlx_checkpoint import QwenExporter, write_json
from mtp_head import MtpHead, draft_logits
from pipeline import EvaluationPlan, evaluate, make_parser, parse, plain_config
from tokenizers import Tokenizer
from training import Log, Schedule, train
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as qwen
from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig

FIRST_CORPUS_SEED = 1000
MTP_LOSS_WEIGHT, BALANCE_LOSS_WEIGHT = 0.3, 0.01
CONTEXT = 32768
DEMO_SIZES = {
    "hidden_size": 256,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "num_experts": 64,
    "num_experts_per_tok": 8,
}
SMOKE_SIZES = {
    **DEMO_SIZES,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "head_dim": 32,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "num_experts": 8,
    "num_experts_per_tok": 2,
}
EVALUATION = EvaluationPlan(
    seed=424242,
    may_think=lambda family: family in ("arith", "wordprob"),
    golden_stride=7,
    golden_count=4,
)


def load_or_make_data(options, template, log):
    """Tokenizer and, unless only exporting, the training stream on the device."""
    path = options.out / "tokenizer.json"
    if options.stage == "export":
        return Tokenizer.from_file(str(path)), None
    texts = dataset.generate_texts(options.samples, FIRST_CORPUS_SEED, template, options.workers)
    tokenizer = dataset.train_tokenizer(texts, options.vocab)
    tokenizer.save(str(path))
    stream = dataset.token_stream(tokenizer, texts)
    log(len(texts), "samples,", len(stream), "tokens, vocabulary", tokenizer.get_vocab_size())
    return tokenizer, torch.from_numpy(stream).to(options.device)


def make_config(tokenizer, smoke):
    config = Qwen3_5MoeTextConfig(
        **(SMOKE_SIZES if smoke else DEMO_SIZES),
        vocab_size=dataset.embedding_rows(tokenizer),
        full_attention_interval=4,
        max_position_embeddings=CONTEXT,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000000.0,
            "partial_rotary_factor": 0.25,
        },
        eos_token_id=dataset.stop_ids(tokenizer),
        tie_word_embeddings=False,
    )
    config._attn_implementation = "sdpa"
    return config


def make_model(config, device):
    torch.manual_seed(0)
    model = qwen.Qwen3_5MoeForCausalLM(config).to(device)
    head = MtpHead(config).to(device)
    for module in head.modules():
        model._init_weights(module)
    return model, head


@contextlib.contextmanager
def fast_forward(model, losses, options):
    """Use the fast layers inside the block. The delta rule is held by each layer, not looked up."""
    delta_rule, moe = fast_layers.chunked_delta_rule, fast_layers.qwen_moe
    if not options.eager:
        delta_rule, moe = torch.compile(delta_rule), torch.compile(moe)
    forward = fast_layers.qwen_moe_forward(moe, losses, options.device)
    with contextlib.ExitStack() as stack:
        block = qwen.Qwen3_5MoeSparseMoeBlock
        stack.enter_context(fast_layers.replaced(block, "forward", forward))
        for layer in model.model.layers:
            if layer.layer_type == "linear_attention":
                change = fast_layers.replaced(
                    layer.linear_attn, "chunk_gated_delta_rule", delta_rule
                )
                stack.enter_context(change)
        yield


def train_model(model, head, stream, options, log):
    torch.backends.cuda.matmul.allow_tf32 = True
    length, vocabulary, balance = options.sequence, model.config.vocab_size, []

    def losses(tokens):
        balance.clear()
        with torch.autocast(options.device, torch.bfloat16):
            final = model.model(input_ids=tokens[:, :length], use_cache=False).last_hidden_state
            logits = model.lm_head(final).float().view(-1, vocabulary)
            next_ids = tokens[:, 1 : length + 1]
            trunk = F.cross_entropy(logits, next_ids.reshape(-1))
            drafts = draft_logits(model, head, next_ids, final).float().view(-1, vocabulary)
            draft = F.cross_entropy(drafts, tokens[:, 2 : length + 2].reshape(-1))
            spread = torch.stack(balance).mean()
        total = trunk + MTP_LOSS_WEIGHT * draft + BALANCE_LOSS_WEIGHT * spread
        return total, {"loss": trunk, "mtp": draft, "balance": spread}

    schedule = Schedule(
        options.minutes, options.batch, length, options.rate, hold=0.55, log_every=100
    )
    parameters = [*model.parameters(), *head.parameters()]
    model.train()
    head.train()
    with fast_forward(model, balance, options):
        return train(schedule, parameters, stream, 2, losses, lambda: None, log)


def write_tokenizer(folder, tokenizer, template, config):
    tokenizer.save(str(folder / "tokenizer.json"))
    added = {
        str(tokenizer.token_to_id(token)): {
            "content": token,
            "special": token in dataset.CONTROL_TOKENS,
            "normalized": False,
            "lstrip": False,
            "rstrip": False,
            "single_word": False,
        }
        for token in dataset.ADDED_TOKENS
    }
    tokenizer_config = {
        "tokenizer_class": "Qwen2TokenizerFast",
        "eos_token": dataset.TURN_END,
        "pad_token": dataset.END_OF_TEXT,
        "bos_token": None,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": CONTEXT,
        "added_tokens_decoder": added,
    }
    write_json(folder / "tokenizer_config.json", tokenizer_config)
    (folder / "chat_template.jinja").write_text(template)
    generation = {"do_sample": False, "temperature": 0.7, "top_p": 0.9, "top_k": 20}
    write_json(
        folder / "generation_config.json", {"eos_token_id": config.eos_token_id, **generation}
    )


def export(model, head, options, log):
    """Write the quantised weights and load what they mean back into the model."""
    folder = options.out / "model"
    folder.mkdir(exist_ok=True)
    exporter = QwenExporter()
    for name, tensor in model.state_dict().items():
        exporter.add(name, tensor)
    for name, tensor in head.state_dict().items():
        exporter.add("mtp." + name, tensor)
    is_head = {n: n.startswith("mtp.") for n in exporter.dequantized}
    model.load_state_dict({n: t for n, t in exporter.dequantized.items() if not is_head[n]})
    head.load_state_dict(
        {n.removeprefix("mtp."): t for n, t in exporter.dequantized.items() if is_head[n]}
    )
    log("checkpoint", exporter.write(folder) / 1e6, "MB")
    quantization = {"mode": "affine", **exporter.quantization_config()}
    config = {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "text_config": {**plain_config(model.config), "mtp_num_hidden_layers": 1},
        "tie_word_embeddings": False,
        "eos_token_id": model.config.eos_token_id,
        "quantization": quantization,
        "quantization_config": quantization,
    }
    write_json(folder / "config.json", config)
    return folder


def main():
    parser = make_parser(__doc__.splitlines()[0], 12, 900_000, 3e-3, answers=163)
    parser.add_argument("--vocab", type=int, default=4096, help="largest vocabulary to train")
    options, log = parse(parser), Log()
    template = options.template.read_text()
    tokenizer, stream = load_or_make_data(options, template, log)
    model, head = make_model(make_config(tokenizer, options.smoke), options.device)
    log("parameters", sum(p.numel() for p in model.parameters()) / 1e6, "M without the MTP head")
    state_path = options.out / "state.pt"
    if options.stage != "export":
        history = train_model(model, head, stream, options, log)
        state = {"model": model.state_dict(), "mtp": head.state_dict(), "hist": history}
        torch.save(state, state_path)
    if options.stage == "train":
        return
    state = torch.load(state_path, map_location=options.device)
    model.load_state_dict(state["model"])
    head.load_state_dict(state["mtp"])
    model.eval()
    head.eval()
    folder = export(model, head, options, log)
    write_tokenizer(folder, tokenizer, template, model.config)
    evaluate(
        EVALUATION,
        model,
        tokenizer,
        template,
        options,
        log,
        draft_logits=lambda ids, final: draft_logits(model, head, ids[:, 1:], final[:, :-1]),
        extra_report={"loss_history": state["hist"]},
    )


if __name__ == "__main__":
    main()
