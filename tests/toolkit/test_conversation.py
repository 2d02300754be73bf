"""A conversation: what is kept of it, whatever happens."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from mustcall.core.message import Role
from mustcall.engine.agent.events import CallFinished, RunEvent, RunFinished, TextDelta
from mustcall.engine.agent.upstream import Upstream
from mustcall.engine.run_records.results import Stopped
from mustcall.policy.facts.wording import Wording
from mustcall.policy.reply.faithfulness import AnswerCheck
from mustcall.testing import Answer, Call, Fail, Hang, Recorded, Say, ScriptedUpstream, Turn
from mustcall.toolkit.conversation import Conversation, Manner
from mustcall.toolkit.kit import Kit, KitSettings
from mustcall.toolkit.summary import conversation_as_json, conversation_as_markdown, run_as_json, trace_lines
from support.compared import leave
from support.talking import talker, was_told

WIRES = ["chat", "responses", "messages"]


async def opened(folder: Path) -> Kit:
    """A kit with nothing to close."""
    (folder / "a.txt").write_text("one")
    return await Kit(KitSettings(roots=(folder,))).__aenter__()


def talk(
    kit: Kit, upstream: ScriptedUpstream, wire: str = "chat", *, model: str = "m", check: str = "small"
) -> Conversation:
    """A conversation over a scripted model."""
    connect: Callable[[str], Upstream] = lambda model: Upstream(f"{wire}={upstream.base_url}", model=model)  # noqa: E731
    return Conversation(kit, connect, Manner(check=AnswerCheck(check)), model)


async def events(conversation: Conversation, question: str) -> list[RunEvent]:
    """Ask to the end."""
    return [event async for event in conversation.ask(question)]


@pytest.mark.parametrize("wire", WIRES)
async def test_the_history_goes_on(tmp_path: Path, wire: str) -> None:
    """Rule 79: question, call, result, answer, question: each request carries what came before, on every wire."""
    kit = await opened(tmp_path)
    with ScriptedUpstream(talker) as upstream:
        conversation = talk(kit, upstream, wire)
        seen = await events(conversation, "Which files are here?")
        await events(conversation, "Thank you")
    assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "Let me look.The tool said: a.txt"
    assert [event.ok for event in seen if isinstance(event, CallFinished)] == [True]
    roles = [message.role for message in conversation.history]
    assert roles[:4] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert roles[4:] != []
    assert "The tool said: a.txt" in str(upstream.requests[-1].body)


async def test_what_failed_is_forgotten(tmp_path: Path) -> None:
    """A question that failed before anything came of it leaves no trace in the history, and nothing is raised."""
    kit = await opened(tmp_path)
    answers: list[Answer] = [Turn(Say("Yes.")), Fail(400, "no"), Turn(Say("Good."))]
    with ScriptedUpstream(answers) as upstream:
        conversation = talk(kit, upstream)
        await events(conversation, "one")
        seen = await events(conversation, "two")
        last = seen[-1]
        assert isinstance(last, RunFinished)
        assert last.result.error is not None
        assert last.result.error.message == "no"
        assert len(conversation.history) == 2
        await events(conversation, "three")
    assert "two" not in str(upstream.requests[-1].body["messages"])


async def test_what_ran_before_a_failure_is_kept(tmp_path: Path) -> None:
    """A call that was made and answered stays, so that nobody makes it twice."""
    kit = await opened(tmp_path)
    answers: list[Answer] = [Turn(Call("calculator", {"expression": "1+1"})), Fail(400, "no"), Turn(Say("Two."))]
    with ScriptedUpstream(answers) as upstream:
        conversation = talk(kit, upstream)
        await events(conversation, "one and one?")
        assert [message.role for message in conversation.history] == [Role.USER, Role.ASSISTANT, Role.TOOL]
        await events(conversation, "well?")
    told = str(upstream.requests[-1].body["messages"])
    assert "calculator" in told
    assert "well?" in told


async def test_stopping_in_the_middle(tmp_path: Path) -> None:
    """Leaving the answer stops it; what was said so far is kept, and the upstream's connection is closed."""
    kit = await opened(tmp_path)
    answers: list[Answer] = [Hang(Turn(Say("word " * 200)), after=2000), Turn(Say("Fine."))]
    with ScriptedUpstream(answers) as upstream:
        conversation = talk(kit, upstream)
        asking = conversation.ask("go")
        async for event in asking:
            if isinstance(event, TextDelta):
                break
        await asking.aclose()
        assert conversation.last is not None
        assert conversation.last.stopped is Stopped.CANCELLED
        assert [message.role for message in conversation.history] == [Role.USER, Role.ASSISTANT]
        await events(conversation, "go on")
    assert "word" in str(upstream.requests[1].body)


async def test_another_model(tmp_path: Path) -> None:
    """Another model gets the whole history; clearing forgets it."""
    kit = await opened(tmp_path)
    with ScriptedUpstream([Turn(Say("A.")), Turn(Say("B.")), Turn(Say("C."))]) as upstream:
        conversation = talk(kit, upstream)
        await events(conversation, "one")
        conversation.use("other")
        await events(conversation, "two")
        conversation.clear()
        await events(conversation, "three")
    bodies = [request.body for request in upstream.requests]
    assert [body["model"] for body in bodies] == ["m", "other", "other"]
    assert "one" in str(bodies[1]["messages"])
    assert "one" not in str(bodies[2]["messages"])


async def test_written_down(tmp_path: Path) -> None:
    """A run is told as JSON and as a trace, a conversation as a chat body and as Markdown; nothing is lost."""
    kit = await opened(tmp_path)

    def leaky(recorded: Recorded) -> Turn:
        if was_told(recorded):
            return Turn(Say("```\nfenced\n```"))
        if len(upstream.requests) == 1:
            return Turn(Say("I guess a.txt."))
        return Turn(Call("list_directory", {"path": "."}))

    with ScriptedUpstream(leaky) as upstream:
        leave(upstream, "it is about how a run is written down")
        conversation = talk(kit, upstream)
        await events(conversation, "List files in this folder")
    assert conversation.last is not None
    told = run_as_json(conversation.last, kit.reports, model="m", upstream="chat")
    assert [(one["step"], one["verdict"]) for one in told["attempts"]] == [
        (1, "force_missed"),
        (1, "called"),
        (2, "answered"),
    ]
    assert told["force_satisfied"] is True
    assert msgspec.json.encode(told)
    lines = list(trace_lines(conversation.last, kit.reports))
    assert lines[0] == "step 1: calls (protocol hybrid, force met)"
    assert any(line.startswith("  call list_directory: ok") for line in lines)
    body = msgspec.json.decode(conversation_as_json(conversation.history, model="m"))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool", "assistant"]
    page = conversation_as_markdown(conversation.history, model="m").decode()
    assert "## You\n\nList files in this folder" in page
    assert 'list_directory {"path":"."}' in page
    assert "## Tools\n\n```" in page


LOST = Turn(Call("list_directory", {"path": "/path/to/folder"}))


@pytest.mark.parametrize("wire", ["chat", "responses"])  # on Messages a history with calls needs tools (rule 104)
async def test_a_small_model(tmp_path: Path, wire: str) -> None:
    """A small model gets one round of calls, held to the question, and answers without tools in sight."""
    kit = await opened(tmp_path)
    answer = Turn(Say("There is a.txt."))
    with ScriptedUpstream([LOST, answer, Turn(Say("Hello!")), LOST, answer]) as upstream:
        conversation = talk(kit, upstream, wire, model="tiny-0.5b")
        seen = await events(conversation, "List the files in this folder")
        assert [event.ok for event in seen if isinstance(event, CallFinished)] == [True]
        assert conversation.last is not None
        assert (conversation.last.text, conversation.last.stopped) == ("There is a.txt.", Stopped.ANSWERED)
        assert isinstance(seen[-1], RunFinished)
        assert seen[-1].result.stopped is Stopped.ANSWERED
        await events(conversation, "Hello")
        assert conversation.last.text == "Hello!"
        await events(conversation, "List the files again")
        bodies = [one.body for one in upstream.requests]
    assert ["tools" in body for body in bodies] == [True, False, True, True, False]
    assert Wording().answer_worked in str(bodies[1])
    # What was said before the question is not read again for its answer.
    assert ["Hello!" in str(body) for body in bodies[3:]] == [True, False]


async def test_a_model_of_unknown_size(tmp_path: Path) -> None:
    """Any other model is believed: its arguments are its own, and it calls as often as it likes."""
    kit = await opened(tmp_path)
    here = Turn(Call("list_directory", {"path": "."}))
    with ScriptedUpstream([LOST, here, Turn(Say("There are 9 files."))]) as upstream:
        conversation = talk(kit, upstream)
        seen = await events(conversation, "List the files in this folder")
    assert [event.ok for event in seen if isinstance(event, CallFinished)] == [False, True]
    assert conversation.last is not None
    assert conversation.last.text == "There are 9 files."


async def test_checks_can_be_asked_for(tmp_path: Path) -> None:
    """With `always` a model of any size is held to the question and to the result; tools stay on offer."""
    kit = await opened(tmp_path)
    with ScriptedUpstream([LOST, Turn(Say("There are 9 files."))]) as upstream:
        conversation = talk(kit, upstream, check="always")
        await events(conversation, "List the files in this folder")
        assert all("tools" in one.body for one in upstream.requests)
    assert conversation.last is not None
    assert conversation.last.text == f"According to `list_directory`:\n1 entry in {tmp_path}:\na.txt (3 bytes)"
