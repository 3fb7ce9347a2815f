"""Dropout off, for parity runs: two random generators never agree, so nothing may be dropped."""

import functools

from .wrapping import unseen

FUNCTIONS = (
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "feature_alpha_dropout",
)


def off(torch):
    """Let every functional dropout pass its input through."""
    functional = torch.nn.functional
    for name in FUNCTIONS:
        if hasattr(functional, name):
            _pass_through(functional, name)
    original = getattr(functional, "scaled_dot_product_attention", None)
    if original is not None:

        @functools.wraps(original)
        @unseen
        def attention(query, key, value, attn_mask=None, dropout_p=0.0, *args, **kwargs):
            return original(query, key, value, attn_mask, 0.0, *args, **kwargs)

        functional.scaled_dot_product_attention = attention


def _pass_through(functional, name):
    original = getattr(functional, name)

    @functools.wraps(original)
    @unseen
    def dropout(input, *args, **kwargs):
        return input

    setattr(functional, name, dropout)


def off_in(module):
    """The kernels of recurrent layers drop out by themselves, whatever the functions do."""
    for child in module.modules():
        if isinstance(getattr(child, "dropout", None), float) and hasattr(child, "all_weights"):
            child.dropout = 0.0
