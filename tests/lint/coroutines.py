#!/usr/bin/env python3
"""Keeps co_await out of conditions: g++ 12 miscompiles `if (co_await f())` at -O2 (the frame is read before it is written).

Name the value first:  const auto error = co_await f();  if (error) ...
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEYWORD = re.compile(r"\b(?:if|while|switch)\s*\(")


def awaits_in_condition(code: str) -> bool:
    """True when the parentheses behind if, while or switch hold a co_await."""
    for match in KEYWORD.finditer(code):
        depth, end = 1, match.end()
        while end < len(code) and depth:
            depth += {"(": 1, ")": -1}.get(code[end], 0)
            end += 1
        if "co_await" in code[match.end():end]:
            return True
    return False


def main() -> int:
    problems, files = [], 0
    for file in sorted((ROOT / "server").rglob("*")):
        if file.suffix not in (".cc", ".h"):
            continue
        files += 1
        for number, line in enumerate(file.read_text().splitlines(), 1):
            code = line.split("//")[0]
            if awaits_in_condition(code):
                problems.append(f"{file.relative_to(ROOT)}:{number}: co_await inside a condition")
    print("\n".join(problems) if problems else f"coroutines: {files} files, no violation")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
