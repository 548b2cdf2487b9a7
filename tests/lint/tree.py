#!/usr/bin/env python3
"""Checks what may be in the tracked tree: total size, top level, no foreign data, no machine paths, no ownerless TODO.

Exit status 0 and one line when clean; otherwise every violation.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_BYTES = 60 * 1024 * 1024
TOP_LEVEL = {"CMakeLists.txt", "CMakePresets.json", "README.md", "LICENSE", "server", "engine", "kernels", "cache", "proto",
             "configs", "deploy", "tests", "docs"}
# Published tokenizers and reference prose are other people's work; their names must not appear as tracked files.
FOREIGN_NAMES = {"needle.json", "heldout.txt", "tokens.json", "chat.json"}
TEXT_SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".py", ".md", ".txt", ".sh", ".v", ".yml", ".yaml", ".proto", ".cmake", ""}
MACHINE_PATH = re.compile(r"/(?:work/(?:main|shared)|root/|home/\w+/)")
LEFTOVER = re.compile(r"\b(?:TODO|FIXME|XXX)\b")


def tracked():
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in names.split("\0") if name and (ROOT / name).is_file()]


def main() -> int:
    problems, total = [], 0
    for name in tracked():
        file = ROOT / name
        total += file.stat().st_size
        top = name.split("/")[0]
        if top not in TOP_LEVEL and not top.startswith("."):
            problems.append(f"{name}: not a folder or file of the top level")
        if file.name in FOREIGN_NAMES:
            problems.append(f"{name}: reference data of others stays out of the repository")
        if file.suffix in TEXT_SUFFIXES and file.stat().st_size < 1 << 20 and name != "tests/lint/tree.py":
            for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
                if MACHINE_PATH.search(line):
                    problems.append(f"{name}:{number}: names a path of one machine")
                if LEFTOVER.search(line) and not name.startswith("docs/"):
                    problems.append(f"{name}:{number}: leftover without an owner (write it into docs instead)")
    if total > LIMIT_BYTES:
        problems.append(f"tracked tree is {total / 2**20:.1f} MiB, the limit is {LIMIT_BYTES / 2**20:.0f} MiB")
    print("\n".join(problems) if problems else f"tree: {total / 2**20:.1f} MiB tracked, no violation")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
