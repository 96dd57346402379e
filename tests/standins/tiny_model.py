"""A language model and an eye for it, small enough to be written on the spot, for a real llama.cpp to run.

Weights are random but for one thing: each character has one that likely follows it, so that answers come to an end.
"""

from pathlib import Path
from typing import Final

import gguf
import numpy as np
import numpy.typing as npt

_WIDTH: Final = 320
_EYE: Final = 32
# What likely follows a character; quotes open "ok", brackets close at once, and a closing brace ends it all.
_FOLLOWS: Final = {'"': "o:,}]", "o": "k", "k": '"', "[": "]", "}": "\0,]", "]": ",}", ":": '"[{'}
_SPECIAL: Final = ("<unk>", "<s>", "</s>")
_END: Final = 2


def write_model(path: Path, context_tokens: int = 4096) -> None:
    """A text model whose tokens are bytes."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(context_tokens)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(5)
    writer.add_head_count_kv(5)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(64)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    _add_vocabulary(writer)
    for name, weights in _text_weights().items():
        writer.add_tensor(f"{name}.weight", weights)
    _write(writer)


def write_eye(path: Path) -> None:
    """What makes tokens of a picture, after LLaVA's design: two layers of patches of 28 px, and a projector."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_bool("clip.use_gelu", True)
    writer.add_string("clip.projector_type", "mlp")
    sizes = {"image_size": 56, "patch_size": 28, "embedding_length": _EYE, "feed_forward_length": 64}
    sizes |= {"projection_dim": _WIDTH, "block_count": 2, "attention.head_count": 2}
    for name, value in sizes.items():
        writer.add_uint32(f"clip.vision.{name}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    for name, weights in _eye_weights().items():
        writer.add_tensor(name, weights)
    _write(writer)


def _add_vocabulary(writer: gguf.GGUFWriter) -> None:
    tokens = [*_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL, *[gguf.TokenType.BYTE] * 256]
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(_END)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: ")


def _text_weights() -> dict[str, npt.NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    count = len(_SPECIAL) + 256
    following = rng.random((count, _WIDTH)) * 0.01
    following[[_token(space) for space in " \n\t"]] -= 1
    for before, after in _FOLLOWS.items():
        for rank, character in enumerate(after):
            following[_token(character), _token(before)] += 1 - rank / 10
    square = {f"blk.0.attn_{name}": rng.standard_normal((_WIDTH, _WIDTH)) * 0.02 for name in "qkv"}
    wide = {f"blk.0.ffn_{name}": rng.standard_normal((64, _WIDTH)) * 0.02 for name in ("gate", "up")}
    # What the layer computes is dropped, so that a token alone decides what follows it.
    dropped = {"blk.0.attn_output": np.zeros((_WIDTH, _WIDTH)), "blk.0.ffn_down": np.zeros((_WIDTH, 64))}
    norms = {name: np.ones(_WIDTH) for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm")}
    told = {"token_embd": np.eye(count, _WIDTH), "output": following}
    return {name: each.astype(np.float32) for name, each in (told | square | wide | dropped | norms).items()}


def _eye_weights() -> dict[str, npt.NDArray[np.float32]]:
    shapes: dict[str, tuple[int, ...]] = {
        "v.class_embd": (_EYE,),
        "v.patch_embd.weight": (_EYE, 3, 28, 28),
        "v.position_embd.weight": (5, _EYE),
        "mm.0.weight": (_WIDTH, _EYE),
        "mm.0.bias": (_WIDTH,),
        "mm.2.weight": (_WIDTH, _WIDTH),
        "mm.2.bias": (_WIDTH,),
    }
    for name in ("v.pre_ln", "v.post_ln", *(f"v.blk.{layer}.ln{n}" for layer in (0, 1) for n in (1, 2))):
        shapes |= {f"{name}.weight": (_EYE,), f"{name}.bias": (_EYE,)}
    for layer in ("v.blk.0", "v.blk.1"):
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            shapes |= {f"{layer}.{name}.weight": (_EYE, _EYE), f"{layer}.{name}.bias": (_EYE,)}
        shapes |= {f"{layer}.ffn_up.weight": (64, _EYE), f"{layer}.ffn_up.bias": (64,)}
        shapes |= {f"{layer}.ffn_down.weight": (_EYE, 64), f"{layer}.ffn_down.bias": (_EYE,)}
    rng = np.random.default_rng(1)
    return {name: (rng.standard_normal(shape) * 0.02).astype(np.float32) for name, shape in shapes.items()}


def _token(character: str) -> int:
    return _END if character == "\0" else len(_SPECIAL) + ord(character)


def _write(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
