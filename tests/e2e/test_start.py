"""What is said at start, before a request can go wrong."""
import json
import shutil
import struct

from running_server import RunningServer
from scripted_model import write_safetensors
from test_command import run


def copied(folder, to):
    shutil.copytree(folder, to)
    return to


def changed_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    config.update(changes)
    (folder / "config.json").write_text(json.dumps(config))


def read_tensors(path):
    """name -> (shape, floats) of a float32 file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        begin, end = entry["data_offsets"]
        blob = data[8 + size + begin:8 + size + end]
        tensors[name] = (entry["shape"], struct.unpack(f"<{len(blob) // 4}f", blob))
    return tensors


def test_weights_of_more_layers_than_the_configuration_are_refused(scripted_folder, tmp_path):
    folder = copied(scripted_folder, tmp_path / "layers")
    tensors = read_tensors(folder / "model.safetensors")
    extra = {name.replace("layers.0", "layers.7"): tensor for name, tensor in tensors.items() if "layers.0" in name}
    write_safetensors(folder / "model.safetensors", {**tensors, **extra})
    result = run("serve", folder, "--port", "0", "--grpc-port", "0")
    assert result.returncode == 1 and "8 layers" in result.stderr and "num_hidden_layers = 1" in result.stderr


def test_tensors_that_nobody_uses_are_named_and_counted(scripted_folder, tmp_path):
    folder = copied(scripted_folder, tmp_path / "unused")
    tensors = read_tensors(folder / "model.safetensors")
    extra = {f"model.layers.0.extra{i}.weight": ([1, 2], [0.0, 0.0]) for i in range(7)}
    write_safetensors(folder / "model.safetensors", {**tensors, **extra})
    with RunningServer(folder) as server:
        assert "7 tensors of the weights are not part of LlamaForCausalLM" in server.log
        assert "model.layers.0.extra0.weight" in server.log


def test_a_window_that_the_architecture_does_not_have_is_a_warning(scripted_folder, tmp_path):
    folder = copied(scripted_folder, tmp_path / "window")
    changed_config(folder, sliding_window=128)
    with RunningServer(folder) as server:
        assert "sliding_window of 128 tokens is ignored" in server.log
        server.assert_alive()


def test_tokens_that_the_model_does_not_know_are_refused(scripted_folder, tmp_path):
    folder = copied(scripted_folder, tmp_path / "tokens")
    vocab_size = json.loads((folder / "config.json").read_text())["vocab_size"]
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": vocab_size + 3, "content": "<|extra|>"})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    result = run("serve", folder, "--port", "0", "--grpc-port", "0")
    assert result.returncode == 1, result.stderr
    assert "<|extra|>" in result.stderr and f"id {vocab_size + 3}" in result.stderr and f"vocab_size is {vocab_size}" in result.stderr


def test_the_configuration_that_is_shown_can_be_given_back(scripted_folder, tmp_path):
    flags = ["--max-num-seqs", "3", "--request-timeout", "90s", "--api-key", "secret", "--served-model-name", "x", "--allowed-origins", "*"]
    key = {"Authorization": "Bearer secret"}
    with RunningServer(scripted_folder, *flags) as server:
        first = server.get("/server_info", headers=key).json()["config"]
    assert "secret" not in json.dumps(first) and None not in first.values()
    path = tmp_path / "again.json"
    path.write_text(json.dumps(first))
    with RunningServer(scripted_folder, "--config", path) as server:
        assert server.get("/server_info").json()["config"] == first
