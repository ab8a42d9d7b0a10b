"""A byte-level tokenizer written by hand: token i is byte i, and a few special tokens follow."""

from __future__ import annotations

from typing import Any

VOCAB_SIZE = 320
BOS, EOS, PAD = "<|begin|>", "<|end|>", "<|pad|>"
BOS_ID, EOS_ID, PAD_ID = 256, 257, 258
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def byte_symbols() -> list[str]:
    """The printable character that stands for each byte in byte-level BPE (the table of GPT-2)."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)]


def tokenizer_files() -> dict[str, dict[str, Any]]:
    """``tokenizer.json`` of the Hugging Face tokenizers library, and the config that makes transformers load it."""
    return {"tokenizer.json": _tokenizer(), "tokenizer_config.json": _tokenizer_config()}


def _special(number: int, text: str) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": text, "special": True, **flags}


def _tokenizer() -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    specials = [_special(BOS_ID, BOS), _special(EOS_ID, EOS), _special(PAD_ID, PAD)]
    vocab = {symbol: number for number, symbol in enumerate(byte_symbols())}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": specials,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {**vocab, BOS: BOS_ID, EOS: EOS_ID, PAD: PAD_ID},
            "merges": [],
        },
    }


def _tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 512,
        "chat_template": CHAT_TEMPLATE,
    }
