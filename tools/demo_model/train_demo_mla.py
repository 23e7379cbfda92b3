"""Train and export models/demo-mla: a small deepseek_v3 (MLA, grouped routing) on the demo corpus.

    python3 train_demo_mla.py --out OUT           (one NVIDIA GPU)
    python3 train_demo_mla.py --out OUT --smoke   (CPU; tests the steps)

It uses the tokenizer of models/demo, so that one tokenizer serves both models.
"""

from pathlib import Path

import dataset
import fast_layers
import torch
import torch.nn.functional as F
from mlx_checkpoint import DeepseekExporter, write_json
from pipeline import (
    BUNDLED_DEMO,
    EvaluationPlan,
    copy_tokenizer,
    evaluate,
    make_parser,
    parse,
    plain_config,
)
from tokenizers import Tokenizer
from training import Log, Schedule, train
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config

FIRST_CORPUS_SEED = 5000
BALANCE_LOSS_WEIGHT = 0.005
DEMO_SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_shared_experts": 1,
    "n_routed_experts": 32,
    "num_experts_per_tok": 6,
    "n_group": 4,
    "topk_group": 2,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 128,
    "q_lora_rank": 192,
    "qk_rope_head_dim": 32,
    "qk_nope_head_dim": 64,
    "v_head_dim": 64,
}
SMOKE_SIZES = {
    **DEMO_SIZES,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "kv_lora_rank": 64,
    "q_lora_rank": 64,
}
EVALUATION = EvaluationPlan(
    seed=434343, may_think=lambda family: True, golden_stride=5, golden_count=3
)


def make_config(tokenizer, smoke):
    config = DeepseekV3Config(
        **(SMOKE_SIZES if smoke else DEMO_SIZES),
        vocab_size=dataset.embedding_rows(tokenizer),
        routed_scaling_factor=2.5,
        norm_topk_prob=True,
        max_position_embeddings=16384,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
        eos_token_id=dataset.stop_ids(tokenizer),
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    config._attn_implementation = "sdpa"
    return config


def make_model(config, device):
    torch.manual_seed(0)
    model = deepseek.DeepseekV3ForCausalLM(config).to(device)
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.data = torch.zeros_like(buffer, dtype=torch.float32)
    return model


def make_stream(tokenizer, template, options, log):
    texts = dataset.generate_texts(options.samples, FIRST_CORPUS_SEED, template, options.workers)
    stream = dataset.token_stream(tokenizer, texts)
    log(len(texts), "samples,", len(stream), "tokens")
    return torch.from_numpy(stream).to(options.device)


def train_model(model, stream, options, log):
    torch.backends.cuda.matmul.allow_tf32 = True
    config, length = model.config, options.sequence
    balance, loads = [], []

    def losses(tokens):
        balance.clear()
        loads.clear()
        with torch.autocast(options.device, torch.bfloat16):
            final = model.model(input_ids=tokens[:, :length], use_cache=False).last_hidden_state
            logits = model.lm_head(final).float().view(-1, config.vocab_size)
            trunk = F.cross_entropy(logits, tokens[:, 1:].reshape(-1))
            spread = torch.stack(balance).mean()
        return trunk + BALANCE_LOSS_WEIGHT * spread, {"loss": trunk, "balance": spread}

    def adjust_biases():
        fast_layers.balance_biases(loads, config)

    schedule = Schedule(
        options.minutes, options.batch, length, options.rate, hold=0.5, log_every=200
    )
    forward = fast_layers.deepseek_moe_forward(config, balance, loads, options.device)
    model.train()
    with fast_layers.replaced(deepseek.DeepseekV3MoE, "forward", forward):
        parameters = list(model.parameters())
        train(schedule, parameters, stream, 1, losses, adjust_biases, log)


def released_config(config, quantization):
    """config.json in the form released models of this family have, with legacy rope fields.

    It announces an MTP layer that the files do not contain, as such releases do: readers have to
    look at the tensors.
    """
    fields = plain_config(config)
    rope = fields.pop("rope_parameters")
    theta = rope.pop("rope_theta")
    rope.pop("rope_type")
    return {
        **fields,
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_nextn_predict_layers": 1,
        "rope_theta": theta,
        "rope_scaling": {"type": "yarn", **rope},
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "quantization": quantization,
        "quantization_config": quantization,
    }


def export(model, tokenizer_folder, options, log):
    """Write the quantised weights and load what they mean back into the model."""
    folder = options.out / "model"
    folder.mkdir(exist_ok=True)
    exporter = DeepseekExporter()
    for name, tensor in model.state_dict().items():
        exporter.add(name, tensor)
    model.load_state_dict(exporter.dequantized)
    log("checkpoint", exporter.write(folder) / 1e6, "MB")
    config = released_config(model.config, exporter.quantization_config())
    write_json(folder / "config.json", config)
    copy_tokenizer(tokenizer_folder, folder)


def main():
    parser = make_parser(__doc__.splitlines()[0], 6, 700_000, 2e-3, answers=70)
    parser.add_argument(
        "--tokenizer", type=Path, default=BUNDLED_DEMO, help="folder with the tokenizer files"
    )
    options, log = parse(parser), Log()
    template = options.template.read_text()
    tokenizer = Tokenizer.from_file(str(options.tokenizer / "tokenizer.json"))
    model = make_model(make_config(tokenizer, options.smoke), options.device)
    log("parameters", sum(p.numel() for p in model.parameters()) / 1e6, "M")
    state_path = options.out / "state.pt"
    if options.stage != "export":
        train_model(model, make_stream(tokenizer, template, options, log), options, log)
        torch.save(model.state_dict(), state_path)
    if options.stage == "train":
        return
    model.load_state_dict(torch.load(state_path, map_location=options.device))
    model.eval()
    export(model, options.tokenizer, options, log)
    evaluate(EVALUATION, model, tokenizer, template, options, log)


if __name__ == "__main__":
    main()
