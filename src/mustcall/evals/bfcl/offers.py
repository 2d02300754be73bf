"""Writes the benchmark's function documents as tools, in the form it sends them to OpenAI-style endpoints. Pure.

Its types are Python's; endpoints take JSON Schema's. Names lose their dots, which endpoints refuse. Each description
ends with the benchmark's own remark about the language, and that of a fraction with a remark that it is one.
"""

from mustcall.core.origin import JsonObject
from mustcall.core.tools import Tool
from mustcall.evals.bfcl.entries import BenchmarkFunction

__all__ = ["offered_name", "write_tool"]

#: Which type of JSON Schema stands for which of the benchmark's; any other is a string.
_TYPES = {
    "integer": "integer",
    "number": "number",
    "float": "number",
    "string": "string",
    "boolean": "boolean",
    "bool": "boolean",
    "array": "array",
    "list": "array",
    "tuple": "array",
    "dict": "object",
    "object": "object",
    "any": "string",
}
_LANGUAGE = " Note that the provided function is in Python 3 syntax."
_FRACTION = " This is a float type value."


def offered_name(name: str) -> str:
    """Return the name a function is offered and called under."""
    return name.replace(".", "_")


def write_tool(function: BenchmarkFunction) -> Tool:
    """Return a function as the tool that is sent."""
    parameters: JsonObject = {
        **function.parameters,
        "type": "object",
        "properties": _properties(function.properties),
    }
    return Tool(name=offered_name(function.name), description=function.description + _LANGUAGE, parameters=parameters)


def _property(schema: JsonObject) -> JsonObject:
    """Return one parameter; only here a fraction is remarked upon, not inside a list."""
    written = _schema(schema)
    if schema.get("type") == "float":
        written |= {"format": "float", "description": f"{schema.get('description', '')}{_FRACTION}"}
    return written


def _schema(schema: JsonObject) -> JsonObject:
    """Return a schema with JSON Schema's types, all the way down."""
    written: JsonObject = {**schema, "type": _TYPES.get(schema.get("type", ""), "string")}
    if "properties" in schema:
        written["properties"] = _properties(schema["properties"])
    if "items" in schema:
        written["items"] = _schema(schema["items"])
    return written


def _properties(properties: dict[str, JsonObject]) -> JsonObject:
    return {name: _property(schema) for name, schema in properties.items()}
