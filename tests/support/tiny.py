"""A model file of some hundred kilobytes: it loads in no time and answers with letters drawn by chance.

Tests of what holds for every model (waiting, giving up, closing, limits, grammars, processes) need a real engine with a
real file, not good answers: a word of the smallest model with sense costs more than a thousand of these. The weights
come from a fixed seed. The vocabulary is the 256 bytes and the marks of ChatML; only printable ASCII is ever likely, so
that an answer is text and has no end of its own: it ends at a limit, or where a grammar ends it. As in the models of
the catalogue that tests use, the chat template has no place for tools.
"""

import random
import struct
from array import array
from pathlib import Path

__all__ = ["CONTEXT", "tiny_model"]

#: The most tokens of a conversation, and so the longest answer.
CONTEXT = 8192
_WIDTH, _HEADS = 64, 2
#: The width of the inner layer, which alone decides how long a token takes: a tenth of a millisecond, and some.
_QUICK, _SLOW = 64, 16_384
_MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_U32, _I32, _F32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_NORMAL, _CONTROL = 1, 3
_ALIGNED = 32


def tiny_model(folder: Path, name: str = "tiny", *, slow: bool = False) -> Path:
    """Write the model into a folder; return its file. A slow one takes seconds for all that its context holds."""
    file = folder / f"{name}.gguf"
    inner = _SLOW if slow else _QUICK
    tensors = _tensors(inner)
    metadata = _metadata(name, inner)
    heads, data = b"", b""
    for title, (shape, values) in tensors.items():
        heads += _text(title) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += values.tobytes()
        data += bytes(-len(data) % _ALIGNED)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(metadata) + heads
    file.write_bytes(head + bytes(-len(head) % _ALIGNED) + data)
    return file


def _letters() -> list[str]:
    """Return how a vocabulary of bytes spells each of them: printable ones as themselves, others moved behind Latin."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = iter(range(0x100, 0x200))
    return [chr(byte if byte in plain else next(moved)) for byte in range(256)]


def _metadata(name: str, inner: int) -> list[bytes]:
    tokens = [*_MARKS, *_letters()]
    kinds = [_CONTROL] * len(_MARKS) + [_NORMAL] * 256
    values: dict[str, tuple[int, bytes]] = {
        "general.architecture": (_STRING, _text("llama")),
        "general.name": (_STRING, _text(name)),
        "llama.block_count": (_U32, struct.pack("<I", 1)),
        "llama.context_length": (_U32, struct.pack("<I", CONTEXT)),
        "llama.embedding_length": (_U32, struct.pack("<I", _WIDTH)),
        "llama.feed_forward_length": (_U32, struct.pack("<I", inner)),
        "llama.attention.head_count": (_U32, struct.pack("<I", _HEADS)),
        "llama.attention.head_count_kv": (_U32, struct.pack("<I", _HEADS)),
        "llama.rope.dimension_count": (_U32, struct.pack("<I", _WIDTH // _HEADS)),
        "llama.attention.layer_norm_rms_epsilon": (_F32, struct.pack("<f", 1e-5)),
        "llama.vocab_size": (_U32, struct.pack("<I", len(tokens))),
        "tokenizer.ggml.model": (_STRING, _text("gpt2")),
        "tokenizer.ggml.pre": (_STRING, _text("smollm")),
        "tokenizer.ggml.tokens": (_ARRAY, struct.pack("<IQ", _STRING, len(tokens)) + b"".join(map(_text, tokens))),
        "tokenizer.ggml.token_type": (_ARRAY, struct.pack(f"<IQ{len(kinds)}i", _I32, len(kinds), *kinds)),
        "tokenizer.ggml.merges": (_ARRAY, struct.pack("<IQ", _STRING, 0)),
        "tokenizer.ggml.bos_token_id": (_U32, struct.pack("<I", 1)),
        "tokenizer.ggml.eos_token_id": (_U32, struct.pack("<I", 2)),
        "tokenizer.ggml.add_bos_token": (_BOOL, b"\0"),
        "tokenizer.chat_template": (_STRING, _text(_TEMPLATE)),
    }
    return [_text(key) + struct.pack("<I", kind) + value for key, (kind, value) in values.items()]


def _tensors(inner: int) -> dict[str, tuple[tuple[int, ...], "array[float]"]]:
    drawn = random.Random(7)

    def matrix(inputs: int, outputs: int) -> tuple[tuple[int, ...], "array[float]"]:
        some = array("f", [drawn.gauss(0, 0.3) for _ in range(_WIDTH * _WIDTH)])
        return (inputs, outputs), (some * -(-inputs * outputs // len(some)))[: inputs * outputs]

    def ones() -> tuple[tuple[int, ...], "array[float]"]:
        return (_WIDTH,), array("f", [1.0] * _WIDTH)

    words = len(_MARKS) + 256
    shape, output = matrix(_WIDTH, words)
    for word in range(words):  # a row of zeros is never among the forty likeliest
        if not 0x20 <= word - len(_MARKS) < 0x7F:
            output[word * _WIDTH : (word + 1) * _WIDTH] = array("f", bytes(4 * _WIDTH))
    return {
        "token_embd.weight": matrix(_WIDTH, words),
        "output_norm.weight": ones(),
        "output.weight": (shape, output),
        "blk.0.attn_norm.weight": ones(),
        "blk.0.attn_q.weight": matrix(_WIDTH, _WIDTH),
        "blk.0.attn_k.weight": matrix(_WIDTH, _WIDTH),
        "blk.0.attn_v.weight": matrix(_WIDTH, _WIDTH),
        "blk.0.attn_output.weight": matrix(_WIDTH, _WIDTH),
        "blk.0.ffn_norm.weight": ones(),
        "blk.0.ffn_gate.weight": matrix(_WIDTH, inner),
        "blk.0.ffn_up.weight": matrix(_WIDTH, inner),
        "blk.0.ffn_down.weight": matrix(inner, _WIDTH),
    }


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data
