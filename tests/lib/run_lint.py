"""Runs every script of tests/lint and writes one JUnit case each: run_lint.py OUT.xml. Exit status 1 when one failed."""
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

LINT = pathlib.Path(__file__).resolve().parents[1] / "lint"


def write(path: str, cases) -> None:
    suite = ElementTree.Element("testsuite", name="lint", tests=str(len(cases)))
    for name, failure in cases:
        case = ElementTree.SubElement(suite, "testcase", classname="lint", name=name)
        if failure:
            ElementTree.SubElement(case, "failure", message="failed").text = failure
    ElementTree.ElementTree(suite).write(path)


def main() -> int:
    cases = []
    for script in sorted(LINT.glob("*.py")):
        run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
        print("  ", run.stdout.strip().splitlines()[-1] if run.stdout.strip() else script.name)
        cases.append((script.name, (run.stdout + run.stderr) if run.returncode else None))
    write(sys.argv[1], cases)
    return 1 if any(failure for _, failure in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
