"""Adds up the JUnit files of one test run: names what failed (with its output) and what was skipped, then the closing line.

Exit status 1 when anything failed or nothing ran.
"""
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

FAILURE_CHARACTERS = 4000


def read(folder: pathlib.Path):
    """(name, outcome, text) of every test case."""
    for file in sorted(folder.glob("*.xml")):
        for case in ElementTree.parse(file).getroot().iter("testcase"):
            name = f"{file.stem}: {case.get('name')}" if file.stem != "ctest" else case.get("name")
            problem = case.find("failure") if case.find("failure") is not None else case.find("error")
            skipped = case.find("skipped")
            output = case.findtext("system-out") or ""
            if problem is not None:
                yield name, "failed", (problem.text or problem.get("message") or "") + output
            elif skipped is not None or case.get("status") in ("notrun", "disabled"):
                yield name, "skipped", (skipped.get("message") if skipped is not None else "") or ""
            else:
                yield name, "passed", ""


def main() -> int:
    outcomes = {"passed": [], "failed": [], "skipped": []}
    for name, outcome, text in read(pathlib.Path(sys.argv[1])):
        outcomes[outcome].append((name, text))
    for name, text in outcomes["skipped"]:
        print(f"skipped: {name} {text}".rstrip())
    for name, text in outcomes["failed"]:
        print(f"FAILED: {name}\n{text[-FAILURE_CHARACTERS:]}\n")
    counts = {key: len(value) for key, value in outcomes.items()}
    line = f"{counts['passed']} passed, {counts['failed']} failed"
    print(line + (f", {counts['skipped']} skipped" if counts["skipped"] else ""))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
