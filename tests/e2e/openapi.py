"""docs/openapi.json as tests use it."""
import json
import pathlib

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = json.loads((ROOT / "docs" / "openapi.json").read_text())
SCHEMAS = DOCUMENT["components"]["schemas"]


def validator(name):
    return jsonschema.Draft202012Validator({**DOCUMENT, "$ref": f"#/components/schemas/{name}"})


def assert_valid(value, name):
    errors = [f"{'/'.join(map(str, error.path))}: {error.message}" for error in validator(name).iter_errors(value)]
    assert not errors, f"{name}: {errors[:5]} in {json.dumps(value)[:600]}"


def operations():
    """(method, path, operation) of every route."""
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            if method in ("get", "post"):
                yield method.upper(), path, operation
