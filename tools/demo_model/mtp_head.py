"""The multi-token-prediction head of qwen3_5_moe, which transformers leaves out."""

import torch
from torch import nn
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import (
    Qwen3_5MoeDecoderLayer,
    Qwen3_5MoeRMSNorm,
)


class MtpHead(nn.Module):
    """Predicts token t+2 from the trunk's normed output at t and the embedding of token t+1.

    Attribute names are the tensor names of released checkpoints.
    """

    def __init__(self, config):
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        full_attention = config.layer_types.index("full_attention")
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        self.pre_fc_norm_embedding = Qwen3_5MoeRMSNorm(hidden, eps)
        self.pre_fc_norm_hidden = Qwen3_5MoeRMSNorm(hidden, eps)
        self.layers = nn.ModuleList([Qwen3_5MoeDecoderLayer(config, full_attention)])
        self.norm = Qwen3_5MoeRMSNorm(hidden, eps)

    def forward(self, embedding, hidden, position_embeddings):
        joined = [self.pre_fc_norm_embedding(embedding), self.pre_fc_norm_hidden(hidden)]
        x = self.fc(torch.cat(joined, -1))
        y = self.layers[0](x, position_embeddings=position_embeddings, attention_mask=None)
        return self.norm(y[0] if isinstance(y, tuple) else y)


def draft_logits(model, head, next_ids, final):
    """Logits of the head for every position of `final`, given the tokens that follow."""
    positions = torch.arange(next_ids.shape[1], device=next_ids.device).expand(3, 1, -1)
    rotary = model.model.rotary_emb(final, positions)
    return model.lm_head(head(model.model.embed_tokens(next_ids), final, rotary))
