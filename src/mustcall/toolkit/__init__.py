"""Tools that come with mustcall, tools of MCP servers, and the conversation that `mustcall chat` and `run` hold."""
