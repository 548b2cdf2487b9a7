"""Writes rows.json: what Python's Jinja2, set up as chat templates need it, makes of the templates in row_sources/*.py.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install jinja2 && /tmp/venv/bin/python make_rows.py

Each row: {name, template, variables, rendered | error + error_type}. error_type: "raised" (raise_exception), "undefined"
(a message templates are known by), "syntax", or "runtime" (the message is Python's own and is not compared).
"""
import datetime
import importlib.util
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

HERE = pathlib.Path(__file__).parent
NOW = datetime.datetime(2024, 7, 26, 8, 5, 9)


class Raised(Exception):
    pass


class Generation(jinja2.ext.Extension):
    """{% generation %} blocks pass through, in a scope of their own."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    def _pass(self, caller):
        return caller()


def raise_exception(message):
    raise Raised(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda fmt: NOW.strftime(fmt)
    return env


def outcome(env, template, variables):
    try:
        return {"rendered": env.from_string(template).render(**variables)}
    except Raised as e:
        return {"error": str(e), "error_type": "raised"}
    except jinja2.TemplateSyntaxError as e:
        return {"error": e.message, "error_type": "syntax", "line": e.lineno}
    except (jinja2.UndefinedError, jinja2.sandbox.SecurityError) as e:
        return {"error": str(e), "error_type": "undefined"}
    except Exception as e:  # whatever Python says
        return {"error": f"{type(e).__name__}: {e}", "error_type": "runtime"}


def load_sources():
    for path in sorted((HERE / "row_sources").glob("*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for i, row in enumerate(module.ROWS):
            template, variables = row if isinstance(row, tuple) else (row, module.VARIABLES)
            yield f"{path.stem}.{i}", template, variables


def main():
    env = environment()
    rows = [{"name": name, "template": template, "variables": variables, **outcome(env, template, variables)}
            for name, template, variables in load_sources()]
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (HERE / "rows.json").write_text(f"[\n{lines}\n]\n")
    kinds = [row.get("error_type", "rendered") for row in rows]
    print(len(rows), "rows:", {kind: kinds.count(kind) for kind in sorted(set(kinds))})


if __name__ == "__main__":
    main()
