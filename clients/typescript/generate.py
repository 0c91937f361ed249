"""Write `src/api.ts`, the types of the server's bodies and answers, from its OpenAPI document.

`curl -s localhost:8000/v1/openapi.json | python generate.py > src/api.ts`; a test of the server holds it up to date.
"""

from __future__ import annotations

import json
import sys
import textwrap
from typing import Any

HEAD = "// The types of the server's bodies and answers, written by generate.py from its OpenAPI document.\n"


def kind(schema: dict[str, Any]) -> str:
    """Return the type of a schema."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(kind(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(json.dumps(each) for each in schema["enum"])
    match schema.get("type"):
        case "array":
            inner = kind(schema.get("items", {}))
            return f"({inner})[]" if " " in inner else f"{inner}[]"
        case "object":
            values = schema.get("additionalProperties")
            return f"{{ [name: string]: {kind(values) if isinstance(values, dict) else 'unknown'} }}"
        case "integer" | "number":
            return "number"
        case "string" | "boolean" | "null" as name:
            return str(name)
    return "unknown"


def comment(text: str, indent: str = "") -> str:
    """Return a comment of as many lines as it takes."""
    words = " ".join(text.split())
    if len(indent + words) < 110:
        return f"{indent}/** {words} */\n"
    lines = textwrap.wrap(words, 110 - len(indent))
    return f"{indent}/**\n" + "".join(f"{indent} * {line}\n" for line in lines) + f"{indent} */\n"


def interface(name: str, schema: dict[str, Any]) -> str:
    """Return one interface; what has a default may be left out of a body."""
    required = set(schema.get("required", ()))
    written = comment(schema["description"]) if "description" in schema else ""
    written += f"export interface {name} {{\n"
    for field, value in schema.get("properties", {}).items():
        if "description" in value:
            written += comment(value["description"], "  ")
        written += f"  {field}{'' if field in required else '?'}: {kind(value)};\n"
    return written + "}\n"


def types(document: dict[str, Any]) -> str:
    """Return the file."""
    schemas = document["components"]["schemas"]
    return HEAD + "".join("\n" + interface(name, schemas[name]) for name in sorted(schemas))


if __name__ == "__main__":
    sys.stdout.write(types(json.load(sys.stdin)))
