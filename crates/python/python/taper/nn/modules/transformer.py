"""Attention and transformers, of Taper's operations."""

import copy

from ..._functions import empty, full, zeros
from .. import functional as F, init
from ..parameter import Parameter
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear, NonDynamicallyQuantizableLinear
from .module import Module
from .norm import LayerNorm

__all__ = [
    "MultiheadAttention", "TransformerEncoderLayer", "TransformerEncoder", "TransformerDecoderLayer",
    "TransformerDecoder", "Transformer",
]


class MultiheadAttention(Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False,
                 kdim=None, vdim=None, batch_first=False, device=None, dtype=None):
        super().__init__()
        if embed_dim % num_heads:
            raise AssertionError("embed_dim must be divisible by num_heads")
        if add_bias_kv or add_zero_attn:
            raise NotImplementedError("MultiheadAttention: add_bias_kv and add_zero_attn")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.head_dim = embed_dim // num_heads
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.bias_k = self.bias_v = None
        self.add_zero_attn = add_zero_attn
        made = {"device": device, "dtype": dtype}
        if self._qkv_same_embed_dim:
            self.in_proj_weight = Parameter(empty(3 * embed_dim, embed_dim, **made))
        else:
            self.q_proj_weight = Parameter(empty(embed_dim, embed_dim, **made))
            self.k_proj_weight = Parameter(empty(embed_dim, self.kdim, **made))
            self.v_proj_weight = Parameter(empty(embed_dim, self.vdim, **made))
        self.register_parameter("in_proj_bias", Parameter(zeros(3 * embed_dim, **made)) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **made)
        for name, parameter in self._parameters.items():
            if name.endswith("weight"):
                init.xavier_uniform_(parameter)
        if bias:
            init.zeros_(self.out_proj.bias)

    def _projected(self, query, key, value):
        if self._qkv_same_embed_dim:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        for tensor, weight, bias in zip((query, key, value), weights, biases):
            rows = F.linear(tensor, weight, bias)
            yield rows.unflatten(-1, (self.num_heads, self.head_dim)).transpose(-3, -2)

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None,
                average_attn_weights=True, is_causal=False):
        single = query.dim() == 2
        if single:
            query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
        q, k, v = self._projected(query, key, value)
        mask = _additive(attn_mask, q)
        if mask is not None and mask.dim() == 3:
            mask = mask.unflatten(0, (-1, self.num_heads))
        if key_padding_mask is not None:
            padding = _additive(key_padding_mask, q)
            padding = padding[..., None, None, :] if padding.dim() == 1 else padding[:, None, None, :]
            mask = padding if mask is None else mask + padding
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights or dropout:
            scores = (q / self.head_dim**0.5) @ k.transpose(-2, -1)
            weights = (scores if mask is None else scores + mask).softmax(-1)
            heads = F.dropout(weights, dropout, dropout > 0) @ v
        else:
            heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        output = self.out_proj(heads.transpose(1, 2).flatten(2))
        if not need_weights:
            weights = None
        elif average_attn_weights:
            weights = weights.mean(dim=1)
        if single:
            return output.squeeze(0), None if weights is None else weights.squeeze(0)
        return output if self.batch_first else output.transpose(0, 1), weights


def _additive(mask, like):
    """A mask as numbers to add: truth values mark what is left out."""
    if mask is None or mask.is_floating_point():
        return mask
    return zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill(mask, float("-inf"))


class _Layer(Module):
    def __init__(self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation=F.relu, layer_norm_eps=1e-5,
                 batch_first=False, norm_first=False, bias=True, device=None, dtype=None):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias=bias, batch_first=batch_first, **made)
        self._attend_to_memory(d_model, nhead, dropout, bias, batch_first, made)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **made)
        self.norm_first = norm_first
        for number in range(1, self._norms + 1):
            self.add_module(f"norm{number}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made))
        for number in range(1, self._norms + 1):
            self.add_module(f"dropout{number}", Dropout(dropout))
        self.activation = {"relu": F.relu, "gelu": F.gelu}.get(activation, activation)
        # PyTorch's layers of a file look at this.
        self.activation_relu_or_gelu = {F.relu: 1, F.gelu: 2}.get(self.activation, 0)

    def _attend_to_memory(self, *settings):
        pass

    def _feed(self, x):
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def _residual(self, x, number, block):
        norm, dropout = getattr(self, f"norm{number}"), getattr(self, f"dropout{number}")
        return x + dropout(block(norm(x))) if self.norm_first else norm(x + dropout(block(x)))


class TransformerEncoderLayer(_Layer):
    _norms = 2

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        def attend(x):
            return self.self_attn(
                x, x, x, attn_mask=src_mask, key_padding_mask=src_key_padding_mask, need_weights=False
            )[0]

        return self._residual(self._residual(src, 1, attend), 2, self._feed)


class TransformerDecoderLayer(_Layer):
    _norms = 3

    def _attend_to_memory(self, d_model, nhead, dropout, bias, batch_first, made):
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias=bias, batch_first=batch_first, **made)

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None,
                memory_key_padding_mask=None, tgt_is_causal=False, memory_is_causal=False):
        def attend(x):
            return self.self_attn(
                x, x, x, attn_mask=tgt_mask, key_padding_mask=tgt_key_padding_mask, need_weights=False
            )[0]

        def remember(x):
            return self.multihead_attn(
                x, memory, memory, attn_mask=memory_mask, key_padding_mask=memory_key_padding_mask,
                need_weights=False,
            )[0]

        x = self._residual(self._residual(tgt, 1, attend), 2, remember)
        return self._residual(x, 3, self._feed)


class TransformerEncoder(Module):
    def __init__(self, encoder_layer, num_layers, norm=None, enable_nested_tensor=True, mask_check=True):
        super().__init__()
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    def __init__(self, decoder_layer, num_layers, norm=None):
        super().__init__()
        self.layers = ModuleList(copy.deepcopy(decoder_layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    def forward(self, tgt, memory, **masks):
        for layer in self.layers:
            tgt = layer(tgt, memory, **masks)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    def __init__(self, d_model=512, nhead=8, num_encoder_layers=6, num_decoder_layers=6, dim_feedforward=2048,
                 dropout=0.1, activation=F.relu, custom_encoder=None, custom_decoder=None, layer_norm_eps=1e-5,
                 batch_first=False, norm_first=False, bias=True, device=None, dtype=None):
        super().__init__()
        settings = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first,
                    bias, device, dtype)
        made = {"eps": layer_norm_eps, "bias": bias, "device": device, "dtype": dtype}
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*settings), num_encoder_layers, LayerNorm(d_model, **made)
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*settings), num_decoder_layers, LayerNorm(d_model, **made)
        )
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        for parameter in self.parameters():
            if parameter.dim() > 1:
                init.xavier_uniform_(parameter)

    def forward(self, src, tgt, src_mask=None, tgt_mask=None, memory_mask=None, src_key_padding_mask=None,
                tgt_key_padding_mask=None, memory_key_padding_mask=None, **causal):
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask)
        return self.decoder(
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz, device=None, dtype=None):
        return full((sz, sz), float("-inf"), device=device, dtype=dtype).triu(1)
