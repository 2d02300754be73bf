"""The tools of one session."""

import shlex
import sys
from functools import partial
from pathlib import Path

import pytest

from mustcall.core.errors import ConfigError
from mustcall.toolkit import kit as kit_module
from mustcall.toolkit.kit import Kit, KitSettings
from mustcall.toolkit.mcp import McpServer

SERVER = shlex.join([sys.executable, str(Path(__file__).parent / "servers" / "plain" / "mcp_server.py")])


async def test_built_in_tools_and_two_servers_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tool has a name of its own and its source, two servers of the same tools included; closing ends them."""
    # Where every core is busy, a server may take longer to start than a user would wait.
    monkeypatch.setattr(kit_module, "McpServer", partial(McpServer, start=600.0))
    second = Path(__file__).parent / "servers" / "plain" / "mcp_server.py"
    other = tmp_path / "other.py"
    other.symlink_to(second)
    settings = KitSettings(roots=(tmp_path,), mcp=(SERVER, shlex.join([sys.executable, str(other)])))
    async with Kit(settings) as kit:
        names = [tool.name for tool in kit.tools]
        assert len(names) == len(set(names))
        assert kit.sources["calculator"] == "built in"
        assert kit.sources["mcp_server_calculator"] == kit.sources["add"] == SERVER
        assert kit.sources["other_add"] != SERVER
        assert {rule.tool for rule in kit.rules} == {"list_directory", "read_file", "calculator", "current_time"}


async def test_only_some_tools(tmp_path: Path) -> None:
    """`only` narrows the tools and the rules with them; a name nobody has is an error that lists the names."""
    async with Kit(KitSettings(roots=(tmp_path,), only=("calculator",))) as kit:
        assert [tool.name for tool in kit.tools] == ["calculator"]
        assert [rule.tool for rule in kit.rules] == ["calculator"]
    with pytest.raises(ConfigError, match="list_directory, read_file"):
        await Kit(KitSettings(roots=(tmp_path,), only=("nope",))).__aenter__()
    async with Kit(KitSettings(roots=(tmp_path,), ground=False)) as kit:
        assert kit.rules == ()


def test_what_cannot_be_used(tmp_path: Path) -> None:
    """Folders that are none are refused at once."""
    with pytest.raises(ConfigError, match="--docs"):
        Kit(KitSettings(docs=tmp_path / "gone"))
    with pytest.raises(ConfigError, match="--root"):
        Kit(KitSettings(roots=(tmp_path / "gone",)))
