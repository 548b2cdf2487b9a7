"""Runs every script of tests/lint and writes one JUnit case each.

  run_lint.py OUT.xml                     run the lints
  run_lint.py --failed OUT.xml MESSAGE    write one failed case: a stage that could not even start
"""
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


def main() -> None:
    if sys.argv[1] == "--failed":
        write(sys.argv[2], [(sys.argv[3], sys.argv[3])])
        return
    cases = []
    for script in sorted(LINT.glob("*.py")):
        run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
        print("  ", run.stdout.strip().splitlines()[-1] if run.stdout.strip() else script.name)
        cases.append((script.name, (run.stdout + run.stderr) if run.returncode else None))
    write(sys.argv[1], cases)


if __name__ == "__main__":
    main()
