"""Quantise trained models to MLX-style 4-bit checkpoints.

An exporter takes the tensors of a transformers model one by one. It collects what the files will
hold in `stored`, and what those values mean in `dequantized`, which is loaded back into the model
so that goldens belong to exactly the shipped weights.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

GROUP = 64
DEFAULT_BITS = 4
SHARD_BYTES = 14_000_000


def quantize(weight, bits):
    """MLX affine quantisation of a matrix: (packed, scales, biases, dequantised).

    Per group of 64, w ~ q * scale + bias with q in [0, 2^bits), packed low bits first into 32-bit
    words. The end of the group with the larger magnitude gets an exact code, which makes the
    scale negative where that end is the maximum.
    """
    weight = weight.float()
    rows, columns = weight.shape
    groups = weight.view(rows, columns // GROUP, GROUP)
    levels = 2**bits - 1
    low = groups.min(-1, keepdim=True).values
    high = groups.max(-1, keepdim=True).values
    low_dominates = low.abs() > high.abs()
    scale = ((high - low) / levels).clamp_min(1e-7)
    scale = torch.where(low_dominates, scale, -scale)
    edge = torch.where(low_dominates, low, high)
    edge_code = (edge / scale).round()
    scale = torch.where(edge_code != 0, edge / edge_code, scale)
    bias = torch.where(edge_code != 0, edge, torch.zeros_like(edge))
    scale, bias = scale.bfloat16().float(), bias.bfloat16().float()
    codes = ((groups - bias) / scale).round().clamp(0, levels)
    dequantized = (codes * scale + bias).view(rows, columns)
    per_word = 32 // bits
    shifts = torch.arange(per_word, device=weight.device) * bits
    words = (codes.view(rows, -1, per_word).to(torch.int64) << shifts).sum(-1)
    words = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)  # same 32 bits
    scales, biases = (t.squeeze(-1).bfloat16().cpu() for t in (scale, bias))
    return words.cpu().view(torch.uint32), scales, biases, dequantized


class MlxExporter:
    """What both families have in common. Subclasses handle their own tensors in `add_special`."""

    prefix = ""

    def __init__(self):
        self.stored, self.dequantized, self.overrides = {}, {}, {}

    def bits_for(self, name):
        """Embedding and head in 8 bits: they are small here and errors in them cost most."""
        return 8 if name.startswith(("model.embed_tokens", "lm_head")) else DEFAULT_BITS

    def add_special(self, name, tensor):
        """Store a tensor that the general rules do not fit; whether it was one."""
        raise NotImplementedError

    def add(self, name, tensor):
        tensor = tensor.detach()
        if name.endswith("experts.gate_up_proj"):
            module = name.replace("experts.gate_up_proj", "switch_mlp.")
            halves = zip(("gate_proj", "up_proj"), tensor.chunk(2, dim=1))
            parts = [self.add_linear(module + part, half) for part, half in halves]
            self.dequantized[name] = torch.cat(parts, 1)
        elif name.endswith("experts.down_proj"):
            module = name.replace("experts.down_proj", "switch_mlp.down_proj")
            self.dequantized[name] = self.add_linear(module, tensor)
        elif self.add_special(name, tensor):
            pass
        elif tensor.ndim == 2:
            self.dequantized[name] = self.add_linear(
                name.removesuffix(".weight"), tensor, self.bits_for(name)
            )
        else:
            self.add_plain(name, tensor.bfloat16())

    def add_plain(self, name, tensor):
        self.stored[self.prefix + name] = tensor.contiguous().cpu()
        self.dequantized[name] = tensor.float()

    def add_linear(self, module, weight, bits=DEFAULT_BITS):
        """Quantise a matrix, or a stack of them, under a module path; its dequantised values."""
        flat = weight.reshape(-1, weight.shape[-1])
        packed, scales, biases, dequantized = quantize(flat, bits)
        path, lead = self.prefix + module, weight.shape[:-1]
        for suffix, tensor in ((".weight", packed), (".scales", scales), (".biases", biases)):
            self.stored[path + suffix] = tensor.view(*lead, -1)
        if bits != DEFAULT_BITS:
            self.overrides[path] = {"group_size": GROUP, "bits": bits}
        return dequantized.view(weight.shape)

    def quantization_config(self):
        return {"group_size": GROUP, "bits": DEFAULT_BITS, **self.overrides}

    def write(self, folder):
        """Write the files; the number of tensor bytes."""
        shards, size = [{}], 0
        for name, tensor in self.stored.items():
            if size + tensor.nbytes > SHARD_BYTES:
                shards.append({})
                size = 0
            shards[-1][name] = tensor.contiguous()
            size += tensor.nbytes
        metadata = {"format": "mlx"}
        total = sum(tensor.nbytes for tensor in self.stored.values())
        if len(shards) == 1:
            save_file(shards[0], Path(folder) / "model.safetensors", metadata=metadata)
            return total
        weight_map = {}
        for number, shard in enumerate(shards, start=1):
            file_name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
            save_file(shard, Path(folder) / file_name, metadata=metadata)
            weight_map.update(dict.fromkeys(shard, file_name))
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        write_json(Path(folder) / "model.safetensors.index.json", index)
        return total


class QwenExporter(MlxExporter):
    prefix = "language_model."

    def bits_for(self, name):
        routers = ("mlp.gate.weight", "shared_expert_gate.weight")
        return 8 if name.endswith(routers) else super().bits_for(name)

    def add_special(self, name, tensor):
        is_norm = "norm" in name and tensor.ndim == 1
        if name.endswith("conv1d.weight"):
            self.add_plain(name, tensor.bfloat16())
            swapped = self.stored[self.prefix + name].permute(0, 2, 1)
            self.stored[self.prefix + name] = swapped.contiguous()
        elif name.endswith(("A_log", "dt_bias")):
            self.add_plain(name, tensor.float())
        elif is_norm and not name.endswith("linear_attn.norm.weight"):
            # MLX stores these norms with the 1 added that transformers adds at run time.
            self.add_plain(name, (1.0 + tensor.float()).bfloat16())
            self.dequantized[name] = self.dequantized[name] - 1.0
        else:
            return False
        return True


class DeepseekExporter(MlxExporter):
    def add_special(self, name, tensor):
        if name.endswith("e_score_correction_bias"):
            self.add_plain(name, tensor.float())
        elif name.endswith("mlp.gate.weight"):
            self.add_plain(name, tensor.bfloat16())
        else:
            return False
        return True


def write_json(path, value):
    Path(path).write_text(json.dumps(value, indent=1, ensure_ascii=False))
