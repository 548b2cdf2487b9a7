"""Model folders made by hand, so that a test knows every token beforehand.

`write_scripted_model` writes a Llama-shaped folder whose greedy output is a script ("PERM" of the case list): the embedding is the
identity, attention and MLP add nothing, the head is a permutation, so the next token is a function of the current one alone.
`write_random_model` writes config and tokenizer only, for `--load-format dummy`: random weights, where attention matters.

The tokenizer is byte level: ids 0 to 255 are bytes, 256 to 258 special tokens, and then the pieces of the scripts.
"""
import json
import pathlib
import struct

END_OF_TEXT, TURN_START, TURN_END = 256, 257, 258
SPECIALS = {END_OF_TEXT: "<|endoftext|>", TURN_START: "<|im_start|>", TURN_END: "<|im_end|>"}
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def byte_alphabet():
    """The printable stand-in of each byte in byte-level vocabularies."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelled, spare = {}, 0
    for byte in range(256):
        if byte in printable:
            spelled[byte] = chr(byte)
        else:
            spelled[byte] = chr(256 + spare)
            spare += 1
    return spelled


def spell(data: bytes) -> str:
    alphabet = byte_alphabet()
    return "".join(alphabet[byte] for byte in data)


def vocabulary(pieces):
    vocab = {spell(bytes([byte])): byte for byte in range(256)}
    ids = {}
    next_id = max(SPECIALS) + 1
    for piece in pieces:
        if len(piece) == 1:
            ids[piece] = piece[0]
        elif piece not in ids:
            vocab[spell(piece)] = ids[piece] = next_id
            next_id += 1
    return vocab, ids, next_id


def write_tokenizer(folder, vocab, chat_template=CHATML):
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [{"id": id_, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for id_, text in SPECIALS.items()],
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []},
    }
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": SPECIALS[TURN_END], "pad_token": SPECIALS[END_OF_TEXT]}
    if chat_template is not None:
        config["chat_template"] = chat_template
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_config(folder, vocab_size, **changes):
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": vocab_size,
        "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False,
        "torch_dtype": "float32", "vocab_size": vocab_size, "bos_token_id": None, "eos_token_id": TURN_END,
        "attention_bias": False, "mlp_bias": False, **changes,
    }
    (folder / "config.json").write_text(json.dumps(config))


def write_safetensors(path, tensors):
    """tensors: name -> (shape, list of floats), stored as float32."""
    header, offset, blobs = {}, 0, []
    for name, (shape, values) in tensors.items():
        blob = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + len(blob)]}
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def permutation(scripts, ids, vocab_size):
    """next[token]: each script is a chain start -> pieces -> its end; what is left maps to itself."""
    following = {}
    for start, pieces, end in scripts:
        chain = [ord(start), *[ids[piece] for piece in pieces]]
        for current, next_ in zip(chain, chain[1:]):
            assert current not in following, f"token {current} has two successors"
            following[current] = next_
        following[chain[-1]] = chain[0] if end is None else end
    return [following.get(token, token) for token in range(vocab_size)]


def write_scripted_model(folder, scripts, chat_template=CHATML, eos_token_id=TURN_END):
    """scripts: list of (start character, [pieces as bytes], end token or None for a loop). The last prompt token chooses the script.

    Single-byte pieces are the byte tokens themselves, so a byte occurs once in all scripts. The head is a plain matrix: several
    scripts may share their end token.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    vocab, ids, used = vocabulary([piece for _, pieces, _ in scripts for piece in pieces])
    size = -(-used // 32) * 32
    for id_ in range(used, size):
        vocab[f"<unused{id_}>"] = id_
    write_tokenizer(folder, vocab, chat_template)
    write_config(folder, size, eos_token_id=eos_token_id)
    following = permutation(scripts, ids, size)
    identity, head = [0.0] * (size * size), [0.0] * (size * size)
    for token in range(size):
        identity[token * size + token] = 1.0
        head[following[token] * size + token] = 1.0
    layer = "model.layers.0."
    zeros = lambda *shape: (list(shape), [0.0] * (shape[0] * shape[1]))
    ones = ([size], [1.0] * size)
    write_safetensors(folder / "model.safetensors", {
        "model.embed_tokens.weight": ([size, size], identity), "lm_head.weight": ([size, size], head), "model.norm.weight": ones,
        layer + "input_layernorm.weight": ones, layer + "post_attention_layernorm.weight": ones,
        layer + "self_attn.q_proj.weight": zeros(32, size), layer + "self_attn.k_proj.weight": zeros(16, size),
        layer + "self_attn.v_proj.weight": zeros(16, size), layer + "self_attn.o_proj.weight": zeros(size, 32),
        layer + "mlp.gate_proj.weight": zeros(16, size), layer + "mlp.up_proj.weight": zeros(16, size),
        layer + "mlp.down_proj.weight": zeros(size, 16),
    })
    return ids


def write_random_model(folder):
    """For --load-format dummy --seed N."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    vocab, _, used = vocabulary([])
    for id_ in range(used, 320):
        vocab[f"<unused{id_}>"] = id_
    write_tokenizer(folder, vocab)
    write_config(folder, 320, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=16, max_position_embeddings=131072)
