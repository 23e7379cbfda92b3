"""Training-time replacements for slow parts of the transformers models.

Each computes the same function as the original in a form that is fast for tiny models on one GPU;
inference and goldens always use the originals.
"""

import contextlib

import torch
import torch.nn.functional as F


@contextlib.contextmanager
def replaced(owner, name, value):
    """Set an attribute for the duration of a with block."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def run_all_experts(x, gate_up, down, weights):
    """Every expert on every token, unselected ones weighted by zero: one large product instead of
    many small ones. weights: [tokens, experts]."""
    experts, two_inner, hidden = gate_up.shape
    gate, up = (
        (x @ gate_up.reshape(-1, hidden).to(x.dtype).T)
        .view(-1, experts, 2, two_inner // 2)
        .unbind(2)
    )
    inner = F.silu(gate) * up * weights[..., None].to(x.dtype)
    flat = inner.reshape(-1, experts * two_inner // 2)
    return flat @ down.permute(0, 2, 1).reshape(-1, hidden).to(x.dtype)


def qwen_moe(x, router, gate_up, down, top_k: int):
    """Softmax routing: (output, load-balancing loss with a router z-loss)."""
    experts = gate_up.shape[0]
    logits = F.linear(x.float(), router.float())
    probability = logits.softmax(-1)
    values, indices = probability.topk(top_k, -1)
    values = values / values.sum(-1, keepdim=True)
    weights = torch.zeros_like(probability).scatter(1, indices, values)
    load = (weights > 0).float().mean(0) / top_k
    balance = experts * (load * probability.mean(0)).sum()
    z_loss = 1e-3 * logits.logsumexp(-1).square().mean()
    return run_all_experts(x, gate_up, down, weights), balance + z_loss


def qwen_moe_forward(core, losses, device):
    """A forward for Qwen3_5MoeSparseMoeBlock that appends its auxiliary loss to `losses`."""

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        with torch.autocast(device, torch.bfloat16):
            routed, loss = core(
                x.bfloat16(),
                self.gate.weight,
                self.experts.gate_up_proj,
                self.experts.down_proj,
                self.gate.top_k,
            )
        losses.append(loss)
        shared = torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        return (routed + shared).view(shape)

    return forward


def deepseek_route(moe, x, config, device):
    """Grouped sigmoid routing: (scores, dense weights), both [tokens, experts]."""
    experts, groups = config.n_routed_experts, config.n_group
    with torch.autocast(device, enabled=False):
        score = F.linear(x.float(), moe.gate.weight.float()).sigmoid()
    biased = score + moe.gate.e_score_correction_bias
    group_score = biased.view(-1, groups, experts // groups).topk(2, -1)[0].sum(-1)
    kept = torch.zeros_like(group_score).scatter(1, group_score.topk(config.topk_group, -1)[1], 1.0)
    hidden = kept.repeat_interleave(experts // groups, 1) == 0
    chosen = biased.masked_fill(hidden, float("-inf")).topk(config.num_experts_per_tok, -1)[1]
    weights = score.gather(1, chosen)
    weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * config.routed_scaling_factor
    return score, torch.zeros_like(score).scatter(1, chosen, weights)


def deepseek_moe_forward(config, losses, loads, device):
    """A forward for DeepseekV3MoE. It appends its auxiliary loss to `losses` and (layer, load per
    expert) to `loads`, from which the correction bias is adjusted."""
    ratio = config.n_routed_experts / config.num_experts_per_tok

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        score, weights = deepseek_route(self, x, config, device)
        load = (weights > 0).float().mean(0).detach()
        share = (score / score.sum(-1, keepdim=True)).mean(0)
        losses.append(ratio * (load * share).sum())
        loads.append((self, load))
        experts = self.experts
        routed = run_all_experts(x.bfloat16(), experts.gate_up_proj, experts.down_proj, weights)
        return (routed + self.shared_experts(x)).view(shape)

    return forward


def balance_biases(loads, config):
    """Balancing without a loss: raise the selection bias of underused experts, lower the others."""
    fair = config.num_experts_per_tok / config.n_routed_experts
    for moe, load in loads:
        moe.gate.e_score_correction_bias += 1e-3 * torch.sign(fair - load)


def _l2_normalised(x):
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def _inverse_of_unit_lower(strict):
    """(I + M)^-1 for strictly lower triangular M, by doubling: M is nilpotent, so six factors of
    the Neumann product are exact for chunks of up to 64."""
    inverse = torch.eye(strict.shape[-1], device=strict.device) - strict
    power = strict @ strict
    for _ in range(5):
        inverse, power = inverse + inverse @ power, power @ power
    return inverse


def chunked_delta_rule(query, key, value, g, beta, chunk_size=64, **_options):
    """The gated delta rule over chunks. The sequence length must be a multiple of the chunk."""
    dtype = query.dtype
    query, key, value, beta, g = (t.transpose(1, 2).float() for t in (query, key, value, beta, g))
    query, key = _l2_normalised(query), _l2_normalised(key)
    batch, heads, length, key_dim = key.shape
    chunks = length // chunk_size
    query = query * key_dim**-0.5
    query, key, value = (
        t.reshape(batch, heads, chunks, chunk_size, -1) for t in (query, key, value)
    )
    beta, g = (t.reshape(batch, heads, chunks, chunk_size) for t in (beta, g))
    total = g.cumsum(-1)
    lower = torch.ones(chunk_size, chunk_size, device=query.device, dtype=torch.bool).tril()
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(~lower, -1e9).exp()
    weighted_key = key * beta[..., None]
    strict = ((weighted_key @ key.transpose(-1, -2)) * decay).tril(-1)
    sides = torch.cat([value * beta[..., None], weighted_key * total.exp()[..., None]], -1)
    new_value, old_weight = (_inverse_of_unit_lower(strict) @ sides).split(
        [value.shape[-1], key_dim], -1
    )
    within = (query @ key.transpose(-1, -2)) * decay
    query_in = query * total.exp()[..., None]
    key_out = key * (total[..., -1:] - total).exp()[..., None]
    chunk_decay = total[..., -1].exp()
    state, out = query.new_zeros(batch, heads, key_dim, value.shape[-1]), []
    for n in range(chunks):
        update = new_value[:, :, n] - old_weight[:, :, n] @ state
        out.append(query_in[:, :, n] @ state + within[:, :, n] @ update)
        carried = key_out[:, :, n].transpose(-1, -2) @ update
        state = state * chunk_decay[:, :, n, None, None] + carried
    stacked = torch.stack(out, 2).reshape(batch, heads, length, -1)
    return stacked.transpose(1, 2).contiguous().to(dtype), None
