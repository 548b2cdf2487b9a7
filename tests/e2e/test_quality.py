"""Calibration, stress variants and `assay eval` on the bundled model: a sample of what tests/quality/run measures."""
import json
import pathlib
import shutil
import subprocess
import sys

import pytest

from conftest import TINY
from running_server import BINARY, RunningServer, clean_environment

STRESS = pathlib.Path(__file__).resolve().parents[1] / "quality" / "make_stress_model.py"
TEXT = " ".join(f"The {number}th visitor wrote {word} into the book and left before the rain began."
                for number, word in enumerate(["a name", "nothing", "two words", "the date", "a question", "her address"] * 6, 4))


def run(*arguments):
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=300, env=clean_environment())


def result(*arguments):
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def stressed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stress") / "alpha64"
    subprocess.run([sys.executable, STRESS, TINY, folder, "--alpha", "64"], check=True)
    return folder


@pytest.fixture(scope="module")
def text_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def copy_of_tiny(tmp_path):
    return pathlib.Path(shutil.copytree(TINY, tmp_path / "tiny", ignore=shutil.ignore_patterns("assay-calibration*")))


def test_a_stress_variant_is_the_same_function(stressed):
    question = {"model": "tiny", "prompt": TEXT[:600], "echo": True, "logprobs": 5, "max_tokens": 16, "temperature": 0}
    exact = ("--served-model-name", "tiny", "--kv-pool", "exact")  # only there does nothing depend on the size of a channel
    with RunningServer(TINY, *exact) as plain, RunningServer(stressed, *exact) as server:
        theirs, ours = (s.post("/v1/completions", question).json()["choices"][0] for s in (plain, server))
    assert theirs["text"] == ours["text"]
    expected, got = theirs["logprobs"]["token_logprobs"], ours["logprobs"]["token_logprobs"]
    assert len(got) == len(expected) > 100
    assert max(abs(a - b) for a, b in zip(expected[1:], got[1:])) < 1e-3


def test_a_stress_variant_needs_a_power_of_two(tmp_path):
    done = subprocess.run([sys.executable, STRESS, TINY, tmp_path / "out", "--alpha", "3"], capture_output=True, text=True)
    assert done.returncode == 2 and "power of two" in done.stderr
    assert not (tmp_path / "out").exists()


def test_needles_are_found_and_cells_covered(stressed):
    exact, certified, skewed = result("eval", "needle", "--model", stressed, "--contexts", "512", "--prompts", "3", "--json", "--kv-pool",
                                      "exact,certified@kv_gate=observe,certified@kv_balance=off@kv_gate=observe")
    assert exact["contexts"][0]["right"]["hits"] == certified["contexts"][0]["right"]["hits"] == 3
    assert certified["contexts"][0]["same"]["hits"] == 3
    assert "decode" not in exact and exact["bytes_per_token_head"] == 512 and certified["bytes_per_token_head"] == 264
    decode = certified["decode"]
    assert decode["metered"] > 500 and decode["covered"]["share"] > 0.99
    assert decode["bound_at_most"]["0.1"] <= decode["bound_at_most"]["0.2"] <= decode["metered"]
    assert decode["certified"] <= decode["bound_at_most"]["0.2"]
    # Without balance the variant's channels swamp the others: the meter says so.
    assert skewed["decode"]["covered"]["share"] < 0.2


def test_divergence_and_perplexity(text_file):
    exact, certified = result("eval", "divergence", "--model", TINY, "--text", text_file, "--context", "256", "--chunk", "16", "--json",
                              "--kv-pool", "exact,certified@kv_gate=observe")
    assert exact["positions"] == certified["positions"] == certified["divergence"]["positions"] > 300
    assert 0 < certified["divergence"]["kl_mean"] < 0.01
    assert certified["divergence"]["kl_max"] >= certified["divergence"]["kl_p99"] >= certified["divergence"]["kl_median"]
    assert certified["divergence"]["top1"]["share"] > 0.9 and certified["divergence"]["top5"]["share"] > 0.9
    (again,) = result("eval", "perplexity", "--model", TINY, "--text", text_file, "--context", "256", "--chunk", "64", "--json", "--kv-pool", "exact")
    assert again["nll"] == exact["nll"]  # whatever the chunks
    assert abs(certified["nll"] - exact["nll"]) < 0.02


def test_calibrate_makes_a_file_that_starts_use(copy_of_tiny, text_file):
    made = result("calibrate", "--model", copy_of_tiny, "--text", text_file, "--suggest", "--kv-pool", "certified,no-such-pool", "--tokens",
                  "512", "--context", "256", "--json")
    assert pathlib.Path(made["file"]) == copy_of_tiny / "assay-calibration.bin" and made["tokens"] == 512
    certified, unknown = made["pools"]
    assert certified["coverage"]["0.05"] <= certified["coverage"]["0.2"] and certified["coverage"]["0.5"] > 0.9
    assert certified["raw"]["0.5"] <= certified["raw"]["0.99"] <= certified["raw"]["1"]
    assert certified["tau_of_pages_per_token"]["10"] <= certified["tau_of_pages_per_token"]["0.1"]
    assert "no-such-pool" in unknown["problem"]
    with RunningServer(copy_of_tiny, "--kv-pool", "certified") as server:
        assert "assay-calibration.bin" in server.log
    (copy_of_tiny / "assay-calibration.bin").write_bytes(b"\0" * 100)
    with RunningServer(copy_of_tiny, "--kv-pool", "certified") as server:
        assert "assay-calibration.bin: is not a calibration of this model" in server.log
    assert (copy_of_tiny / "assay-calibration-cache.bin").is_file()


@pytest.mark.parametrize("arguments, words", [
    (["eval"], "needle, perplexity or divergence"),
    (["eval", "needle", "--model", TINY, "--contexts", "12"], "--contexts"),
    (["eval", "needle", "--model", TINY, "--kv-pool", "certified@speed=1"], "speed=1"),
    (["eval", "perplexity", "--model", TINY], "--text FILE is missing"),
    (["eval", "perplexity", "--model", TINY, "--text", "/no/such"], "/no/such"),
    (["eval", "needle", "--model", TINY, "--prompst", "3"], "--prompst"),
    (["calibrate", "--model", TINY], "--text FILE is missing"),
    (["calibrate", "--model", "/no/such", "--text", "/etc/hostname"], "no such folder")])
def test_what_is_wrong_is_said(arguments, words):
    done = run(*arguments)
    assert done.returncode == 2 and words in done.stderr, done.stderr


@pytest.mark.parametrize("command", ["eval", "calibrate"])
def test_help(command):
    assert "--kv-pool" in run("help", command).stdout
