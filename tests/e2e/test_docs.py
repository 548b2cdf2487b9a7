"""Documentation that is made from the program says what the program says."""
import pathlib
import subprocess

from running_server import BINARY, clean_environment

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_configuration_page_is_the_flag_table():
    table = subprocess.run([BINARY, "help", "serve", "--markdown"], capture_output=True, text=True, check=True,
                           env=clean_environment()).stdout
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert table.strip() in page, "docs/configuration.md: replace the table by `assay help serve --markdown`"


def test_example_configuration_is_valid(tmp_path):
    config = (ROOT / "configs" / "serve.json").read_text().replace('"port": 8000', '"port": 1')
    file = tmp_path / "serve.json"
    file.write_text(config.replace('"tests/data/models/tiny"', '"no-such-folder"'))
    run = subprocess.run([BINARY, "serve", "--config", str(file)], capture_output=True, text=True, env=clean_environment())
    assert run.returncode != 0 and "no-such-folder" in run.stderr  # every key was understood; only the folder is wrong
