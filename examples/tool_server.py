"""The tools of an MCP server beside your own; started with the run, ended with it (`pip install 'mustcall[mcp]'`).

The server is this very file: `python examples/tool_server.py serve`.
"""

import os
import sys
from pathlib import Path
from shlex import join

from mustcall import Agent, Options, Upstream
from mustcall.toolkit.mcp import McpServer


def serve() -> None:
    """Be an MCP server of one tool."""
    from mcp.server.mcpserver import MCPServer  # noqa: PLC0415  only the server needs it

    server = MCPServer("stock")

    @server.tool()
    def count_stock(article: str) -> str:
        """Count the stock of an article."""
        return f"{article}: 42 in stock"

    server.run()


def main() -> None:
    """Ask something that the server knows."""
    where = os.environ.get("MUSTCALL_EXAMPLE", "chat=embedded:")
    server = McpServer(join([sys.executable, str(Path(__file__).resolve()), "serve"]))
    model = os.environ.get("MUSTCALL_EXAMPLE_MODEL", "local")
    agent = Agent(Upstream(where, model=model), tools=[server], options=Options(max_tokens=60))
    result = agent.run_sync("Count the stock of candles.", force="count_stock")
    print("called:", [(call.name, call.call.arguments_json, call.result) for call in result.calls])
    print("answer:", result.text.strip())


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
