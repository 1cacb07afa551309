"""A language model of 140 kB that writes noise: enough to see that what it may write is constrained."""

import random
import struct
from array import array
from math import prod
from pathlib import Path
from typing import Any

WIDTH, HEADS, INNER, CONTEXT = 32, 2, 64, 4096
TOKENS = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % n for n in range(256)), *(bytes([n]) for n in range(32, 127))]
KINDS = [2, 3, 3, *[6] * 256, *[1] * 95]
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
ALIGNED = 32


def write_tiny_model(path: Path) -> Path:
    """A llama of one layer with random weights, always the same ones."""
    noise = random.Random(7)
    square = [WIDTH, WIDTH]
    shapes = {
        "token_embd.weight": [WIDTH, len(TOKENS)], "output_norm.weight": [WIDTH], "output.weight": [WIDTH, len(TOKENS)],
        "blk.0.attn_norm.weight": [WIDTH], "blk.0.ffn_norm.weight": [WIDTH],
        **{f"blk.0.attn_{part}.weight": square for part in ("q", "k", "v", "output")},
        "blk.0.ffn_gate.weight": [WIDTH, INNER], "blk.0.ffn_up.weight": [WIDTH, INNER],
        "blk.0.ffn_down.weight": [INNER, WIDTH],
    }  # fmt: skip
    about = {
        "general.architecture": "llama", "llama.context_length": CONTEXT, "llama.embedding_length": WIDTH,
        "llama.block_count": 1, "llama.feed_forward_length": INNER, "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": HEADS, "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": WIDTH // HEADS, "llama.vocab_size": len(TOKENS),
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.scores": [-float(n) for n in range(len(TOKENS))], "tokenizer.ggml.token_type": KINDS,
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.chat_template": TEMPLATE,
    }  # fmt: skip
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(about))
    head += b"".join(_text(key) + _typed(value) for key, value in about.items())
    data = b""
    for name, shape in shapes.items():
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        flat = len(shape) == 1
        data += array("f", (1.0 if flat else noise.gauss(0, 0.2) for _ in range(prod(shape)))).tobytes()
        data += b"\0" * (-len(data) % ALIGNED)
    path.write_bytes(head + b"\0" * (-len(head) % ALIGNED) + data)
    return path


def _text(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def _typed(value: Any) -> bytes:
    """A value with the number of its type before it. Only a list has signed numbers."""
    if isinstance(value, list):
        kind = {bytes: 8, float: 6, int: 5}[type(value[0])]
        return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(_plain(each) for each in value)
    return struct.pack("<I", {str: 8, float: 6, int: 4}[type(value)]) + _plain(value)


def _plain(value: Any) -> bytes:
    if isinstance(value, str | bytes):
        return _text(value)
    return struct.pack("<f" if isinstance(value, float) else "<i", value)
