import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from running_server import DUMMY, RunningServer  # noqa: E402
from scripted_model import TURN_END, write_random_model, write_scripted_model  # noqa: E402

TINY = pathlib.Path(__file__).resolve().parents[1] / "data" / "models" / "tiny"

# Start character -> what the scripted model says after it.
SCRIPTS = [
    ("A", [b"alpha", b" beta", b" gamma"], TURN_END),
    ("B", [bytes([byte]) for byte in "\u010f\U0001F336".encode()], TURN_END),  # two characters, one byte a token
    ("D", [b"do", b"lor", b" sit"], TURN_END),
    ("E", [b"...", b"Mars", b"?", b"\n", b"more"], TURN_END),
    ("F", [b"one ", b"two ", b"three ", b"four ", b"five ", b"six "], None),  # endless: then F again
]


@pytest.fixture(scope="session")
def scripted_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "scripted"
    write_scripted_model(folder, SCRIPTS)
    return folder


@pytest.fixture(scope="session")
def scripted(scripted_folder):
    with RunningServer(scripted_folder, "--served-model-name", "scripted", "--served-model-name", "alias/with/slashes") as server:
        yield server


@pytest.fixture(scope="session")
def random_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "random"
    write_random_model(folder)
    return folder


@pytest.fixture(scope="session")
def random_model(random_folder):
    with RunningServer(random_folder, *DUMMY, "--seed", "7", "--served-model-name", "random") as server:
        yield server


@pytest.fixture(scope="session")
def tiny():
    with RunningServer(TINY, "--served-model-name", "tiny") as server:
        yield server
