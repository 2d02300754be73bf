"""docs/wrap.md and docs/adapters/: every block runs on a model that misbehaves, and prints what the page says."""

import asyncio
import re
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import agents
import pytest

from mustcall.testing import Call, Recorded, Say, ScriptedUpstream, Turn
from support.compared import leave_all

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "wrap.md", *sorted((DOCS / "adapters").glob("*.md"))]
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)
MARKUP = '<tool_call>{"name": "price", "arguments": {"item": "hat"}}</tool_call>'


def _answer(request: Recorded) -> Turn:
    """Be a model that ignores forces, writes calls as text, and answers once it has a price."""
    body = request.body
    if "Be silent" in str(body["messages"]):
        return Turn(Say("I would rather not."))
    if "12 euros" in str(body["messages"]):
        return Turn(Say("A hat costs 12 euros."))
    if "Price" in str(body.get("tools", body)):
        return Turn(Call("Price", {"euros": 12}))
    if body.get("tool_choice", "auto") != "auto":
        return Turn(Say("Twelve euros, I think."))
    return Turn(Say(MARKUP))


@pytest.fixture(autouse=True)
def loop() -> Generator[None]:
    """A loop for what makes one and leaves it open, and no traces."""
    with closing(asyncio.new_event_loop()) as made:
        asyncio.set_event_loop(made)
        yield
        asyncio.set_event_loop(None)
    agents.set_tracing_disabled(disabled=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each page is one program: each block prints what stands below it."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": page.stem}
    with ScriptedUpstream(_answer) as upstream:
        leave_all("a page shows what comes of a request, not what is sent")
        for code, printed in blocks:
            exec(code.replace("http://127.0.0.1:9000", upstream.url), names)  # noqa: S102  our own page
            assert capsys.readouterr().out == printed
        upstream.wait_for_connections(0)
    assert len(blocks) >= 2
