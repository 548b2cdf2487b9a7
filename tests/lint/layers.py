#!/usr/bin/env python3
"""Checks the one rule of the house: which folder may include which, and which third-party library is used where.

A folder may include its own files, the folders listed for it, and the library prefixes listed for it.
Exit status 0 and one line when the tree is clean; otherwise every violation with file and line.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ("kernels", "cache", "engine", "server", "proto", "tests")

# room -> rooms it may include ("engine/api" means only that folder of the room)
ROOM_EDGES = {
    "kernels": {"kernels"},
    "cache": {"kernels", "cache"},
    "engine": {"kernels", "cache", "engine"},
    "server": {"engine/api", "proto", "server"},
    "tests": set(ROOMS),
}

# folder-to-folder edges inside a room that are forbidden although the room allows them
FORBIDDEN = [
    ("engine/schedule", "engine/model"), ("engine/schedule", "engine/execute"), ("engine/schedule", "engine/weights"),
    ("engine/execute", "engine/schedule"), ("engine/api", "engine/core"), ("engine/api", "engine/execute"),
    ("engine/plan", "engine/execute"), ("engine/plan", "engine/schedule"),
    ("server/service", "server/http"), ("server/service", "server/grpc"), ("server/text", "server/service"),
    ("server/http", "server/grpc"), ("server/grpc", "server/http"),
]

# third-party include prefix -> folders that may use it (longest listed folder wins; tests may use all)
LIBRARIES = {
    "absl/": ["cache", "engine", "server"],
    "spdlog/": ["engine", "server"],
    "fmt/": ["engine", "server"],
    "nlohmann/": ["engine", "server"],
    "hwy/": ["kernels/cpu"],
    "oneapi/": ["kernels/cpu"],
    "dnnl": ["kernels/cpu"],
    "boost/": ["server/http", "server/sweep"],
    "openssl/": ["server/http", "server/sweep"],
    "pcre2": ["server/text"],
    "utf8proc": ["server/text"],
    "prometheus/": ["server/ops"],
    "CLI/": ["server/config", "server/main.cc", "server/sweep"],
    "grpcpp/": ["server/grpc", "server/sweep"],
    "grpc/": ["server/grpc"],
    "google/protobuf": ["server/grpc", "proto"],
    "assay/v1/": ["server/grpc", "server/sweep"],
    "nccl": ["engine/comm"],
    "cuda": ["kernels"],
    "cublas": ["kernels"],
    "cudnn": ["kernels"],
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".cpp", ".hpp"}


def under(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def check_include(path: str, target: str, quoted: bool):
    """The reason why `path` may not include `target`, or None."""
    room = path.split("/")[0]
    target_room = target.split("/")[0]
    if target_room in ROOMS:
        if not any(under(target, edge) for edge in ROOM_EDGES[room]):
            return f"{room} may not include {target}"
        for source, forbidden in FORBIDDEN:
            if under(path, source) and under(target, forbidden):
                return f"{source} may not include {forbidden}"
        if not (ROOT / target).exists() and not target.endswith((".pb.h",)):
            return f"no such file: {target}"
        return None
    if quoted and "/" not in target and (ROOT / path).parent.joinpath(target).exists() and room != "tests":
        return f'write includes from the root: "{pathlib.Path(path).parent}/{target}"'
    if room == "tests":
        return None
    for prefix, folders in LIBRARIES.items():
        if target.startswith(prefix) and not any(under(path, folder) for folder in folders):
            return f"{prefix} is allowed only in {', '.join(folders)}"
    return None


def main() -> int:
    problems, files = [], 0
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*")):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            files += 1
            path = file.relative_to(ROOT).as_posix()
            for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
                match = INCLUDE.match(line)
                if match:
                    reason = check_include(path, match.group(2), match.group(1) == '"')
                    if reason:
                        problems.append(f"{path}:{number}: {reason}")
    print("\n".join(problems) if problems else f"layers: {files} files, no violation")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
