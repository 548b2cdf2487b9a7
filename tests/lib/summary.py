"""Adds up the JUnit files of one test run: names what failed (with its output) and what was skipped, then the closing line.

FOLDER/stages has a line "NAME STATUS" for each stage that ran; its cases are in FOLDER/NAME.xml. A stage that left no file, or
that ended with an error though every case in its file passed, is a failure of its own: a run that died must not look green.
Exit status 1 when anything failed or nothing ran.
"""
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

FAILURE_CHARACTERS = 4000


def read_cases(file: pathlib.Path):
    """(name, outcome, text) of every test case of one stage."""
    for case in ElementTree.parse(file).getroot().iter("testcase"):
        name = f"{file.stem}: {case.get('name')}" if file.stem != "ctest" else case.get("name")
        problem = case.find("failure") if case.find("failure") is not None else case.find("error")
        skipped = case.find("skipped")
        message = (skipped.get("message") or "") if skipped is not None else ""
        output = case.findtext("system-out") or ""
        if problem is not None:
            yield name, "failed", (problem.text or problem.get("message") or "") + output
        elif message.startswith("SKIP") or (skipped is not None and file.stem != "ctest"):
            yield name, "skipped", message
        elif skipped is not None or case.get("status") in ("notrun", "fail"):
            yield name, "failed", f"did not run {message} {output}"
        else:
            yield name, "passed", ""


def read(folder: pathlib.Path):
    """(name, outcome, text) of every test case of every stage, and of stages that died."""
    for line in (folder / "stages").read_text().splitlines():
        stage, status = line.split()
        file = folder / f"{stage}.xml"
        try:
            cases = list(read_cases(file))
        except (OSError, ElementTree.ParseError) as error:
            yield f"stage {stage}", "failed", f"left no readable result: {error}"
            continue
        yield from cases
        if status != "0" and not any(outcome == "failed" for _, outcome, _ in cases):
            yield f"stage {stage}", "failed", f"ended with status {status} although no case failed"


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
