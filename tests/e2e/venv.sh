#!/usr/bin/env bash
# Makes the Python environment of the end-to-end tests: tests/e2e/venv.sh FOLDER. Does nothing when it is up to date.
set -euo pipefail
folder=${1:?usage: tests/e2e/venv.sh FOLDER}
requirements=$(cd "$(dirname "$0")" && pwd)/requirements.txt

cmp -s "$requirements" "$folder/requirements.txt" && exit 0
rm -rf "$folder"
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
cp "$requirements" "$folder/requirements.txt"
