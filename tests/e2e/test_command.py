"""The command line itself."""
import json
import pathlib
import subprocess

import pytest

from running_server import BINARY, RunningServer, clean_environment


def run(*arguments, **environment):
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=60, env=clean_environment(**environment))


def test_help_version_and_unknown_commands():
    assert run("version").stdout.startswith("assay ")
    for arguments in [("help",), ("help", "serve"), ("serve", "--help"), ("help", "sweep"), ("help", "doctor")]:
        assert run(*arguments).returncode == 0, arguments
    assert "--max-model-len" in run("help", "serve").stdout
    assert "ASSAY_MAX_MODEL_LEN" in run("help", "serve", "--markdown").stdout
    assert run().returncode == 2 and run("fly").returncode == 2 and run("help", "fly").returncode == 2


@pytest.mark.parametrize("arguments, environment, words", [
    (["serve"], {}, "--model DIR is missing"),
    (["serve", "some-org/some-model"], {}, "huggingface-cli download some-org/some-model"),
    (["serve", "/no/such"], {}, "no such folder"),
    (["serve", "/tmp", "--prot", "1"], {}, "--prot"),
    (["serve", "/tmp", "--port", "x"], {}, "--port"),
    (["serve", "/tmp", "--config", "/no/such.json"], {}, "cannot be read"),
    (["serve", "/tmp", "--ssl-keyfile", "/etc/hostname"], {}, "--ssl-certfile"),
    (["serve", "/tmp", "--api-key-file", "/dev/null"], {}, "holds no key"),
    (["serve", "/tmp"], {"ASSAY_API_KEY": ""}, "ASSAY_API_KEY"),
    (["serve", "/tmp"], {"ASSAY_MAX_NUM_SEQ": "5"}, "ASSAY_MAX_NUM_SEQ"),
    (["serve", "/tmp"], {"ASSAY_PORT": "tcp://10.0.0.1:80"}, "enableServiceLinks")])
def test_what_is_wrong_is_said(arguments, environment, words):
    result = run(*arguments, **environment)
    assert result.returncode == 2 and words in result.stderr, result.stderr


def test_precedence_and_effective_configuration(scripted_folder, tmp_path):
    config = tmp_path / "assay.json"
    config.write_text('{\n  // comments are fine\n  "max_num_seqs": 3, "max_num_queued_reqs": 30, "served_model_name": ["from-file"]}')
    environment = {"ASSAY_CONFIG": str(config), "ASSAY_MAX_NUM_SEQS": "4", "ASSAY_MAX_LOGPROBS": "5"}
    with RunningServer(scripted_folder, "--max-logprobs", "6", environment=environment) as server:
        values = server.get("/server_info").json()["config"]
        assert (values["max_num_queued_reqs"], values["max_num_seqs"], values["max_logprobs"]) == (30, 4, 6)
        assert server.get("/v1/models").json()["data"][0]["id"] == "from-file"
        printed = next(line for line in server.lines if " configuration {" in line)
        assert json.loads(printed[printed.index("{"):])["max_num_seqs"] == 4
        assert server.post("/v1/completions", {"prompt": "A", "logprobs": 7}).status == 400


def test_a_port_in_use_and_a_broken_folder_end_the_start(scripted, scripted_folder, tmp_path):
    result = run("serve", scripted_folder, "--port", scripted.port)
    assert result.returncode == 1 and "cannot listen" in result.stderr
    (tmp_path / "empty").mkdir()
    result = run("serve", tmp_path / "empty", "--port", "0")
    assert result.returncode == 1 and "tokenizer.json" in result.stderr


def test_doctor(scripted_folder, scripted):
    good = run("doctor", scripted_folder, "--port", "0")
    assert good.returncode == 0 and "weights" in good.stdout
    assert "BAD" in run("doctor", scripted_folder, "--port", scripted.port).stdout
    assert run("doctor", "/no/such").returncode == 1


def test_an_unknown_pool_is_refused_with_the_names_there_are():
    tiny = pathlib.Path(__file__).resolve().parents[1] / "data" / "models" / "tiny"
    result = run("serve", str(tiny), "--port", "0", "--kv-pool", "no-such-pool")
    assert result.returncode == 1 and "no-such-pool" in result.stderr and "exact" in result.stderr
