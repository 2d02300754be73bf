"""An MCP server of the standard library alone: it starts at once, where the SDK imports for more than a second.

For tests of processes and names; what is said on the wire is tested with the SDK's own server. Tools that both have
behave alike.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

_NUMBERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
_TOOLS: dict[str, dict[str, Any]] = {
    "add": {"type": "object", "properties": _NUMBERS, "required": ["a", "b"]},
    "calculator": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    "die": {"type": "object", "properties": {}},
    "hang": {"type": "object", "properties": {"mark": {"type": "string"}}, "required": ["mark"]},
}


def _called(name: str, given: dict[str, Any]) -> str:
    match name:
        case "add":
            return str(given["a"] + given["b"])
        case "calculator":
            return f"not computed: {given['expression']}"
        case "hang":
            Path(given["mark"]).write_text("called", encoding="utf-8")
            time.sleep(600)
            return "too late"
        case _:
            os._exit(3)


def _answered(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the rest of the answer to a request."""
    match method:
        case "initialize":
            server = {"name": "tests", "version": "1"}
            version = params["protocolVersion"]
            return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}}
        case "tools/list":
            return {"result": {"tools": [{"name": name, "inputSchema": schema} for name, schema in _TOOLS.items()]}}
        case "tools/call":
            text = _called(params["name"], params.get("arguments") or {})
            return {"result": {"content": [{"type": "text", "text": text}], "isError": False}}
        case _:
            return {"error": {"code": -32601, "message": "Method not found"}}


if __name__ == "__main__":
    print("a word on standard error", file=sys.stderr)  # noqa: T201  what must not reach the terminal
    if "--pid" in sys.argv:
        Path(sys.argv[sys.argv.index("--pid") + 1]).write_text(str(os.getpid()), encoding="utf-8")
    if "--stay" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked:
            answer = {"jsonrpc": "2.0", "id": asked["id"], **_answered(asked["method"], asked.get("params") or {})}
            print(json.dumps(answer), flush=True)  # noqa: T201  the protocol
    if "--stay" in sys.argv:
        Path(sys.argv[sys.argv.index("--stay") + 1]).touch()
        time.sleep(600)
