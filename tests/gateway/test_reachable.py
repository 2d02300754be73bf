"""What callers wrote goes with the server that read it: nothing in the process leads to it afterwards."""

import subprocess
import sys
from pathlib import Path

#: Run in a process of its own, where nobody else keeps what was sent. The words are put together when they are needed.
_SCRIPT = '''
import asyncio, gc, json, re, sys, urllib.error, urllib.request

from mustcall import Agent, FunctionTool, Upstream
from mustcall.testing import Call, Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway


def word(kind):
    return "".join(["zqx", "jkv", kind])


def tools(wire):
    schema = {
        "type": "object",
        "properties": {word("key"): {"type": "string", "description": word("told"), "pattern": word("pattern") + ".*"}},
        "required": [word("key")],
    }
    name, said = word("name"), word("described")
    match wire:
        case "chat":
            return [{"type": "function", "function": {"name": name, "description": said, "parameters": schema}}]
        case "responses":
            return [{"type": "function", "name": name, "description": said, "parameters": schema}]
        case _:
            return [{"name": name, "description": said, "input_schema": schema}]


def ask(gateway, wire, stream, number):
    said = [{"role": "user", "content": word("asked") + " what is 2 + 2? " + word("sum")}]
    body = {"model": word("model"), "tools": tools(wire), "stream": stream, "metadata": {"user_id": word("field")}}
    body |= {"input": said, "instructions": word("system")} if wire == "responses" else {"messages": said}
    if wire == "messages":
        body |= {"max_tokens": 99, "system": word("system")}
    path = {"chat": "chat/completions", "responses": "responses", "messages": "messages"}[wire]
    headers = {"content-type": "application/json", "authorization": "Bearer " + word("secret")}
    headers |= {"x-" + word("header"): "1", "user-agent": word("client") + "/1.0"}
    request = urllib.request.Request(f"{gateway.base_url}/{path}", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        error.read()
        error.close()


def serve(theirs):
    call = Turn(Call(word("name"), {word("key"): word("argument")}))
    text = Turn(Say(f"Use <{word('prefix')}:invoke> of {word('name')} or <tool>{word('name')}</tool>."))
    with ScriptedUpstream([call, text, call, text] * 6) as upstream:
        with RunningGateway(f"{theirs}={upstream.base_url}") as gateway:
            for wire in ("chat", "responses", "messages"):
                for number, stream in enumerate([False, False, True, True]):
                    ask(gateway, wire, stream, number)


def run():
    schema = {"type": "object", "properties": {word("key"): {"type": "string"}}}
    tool = FunctionTool(word("name"), word("described"), schema, lambda arguments: word("result"))
    turns = [Turn(Call(word("name"), {word("key"): "a"})), Turn(Say(word("answer")))]
    with ScriptedUpstream(turns) as upstream:
        agent = Agent(Upstream(f"chat={upstream.base_url}", model=word("model"), api_key=word("secret")), tools=[tool])
        asyncio.run(agent.run(word("asked")))


def left():
    """Return the words that something leads to, each with the types on the way."""
    found, begin = {}, word("").encode()
    seen = set()
    for holder in gc.get_objects():
        if holder is seen or holder is found:
            continue
        waiting = [holder]
        for one in waiting:
            for inner in gc.get_referents(one):
                if isinstance(inner, re.Pattern):
                    inner = inner.pattern
                if isinstance(inner, str):
                    inner = inner.encode("utf-8", "surrogatepass")
                if isinstance(inner, (bytes, bytearray)):
                    if begin in inner:
                        found.setdefault(bytes(inner)[:60], f"{type(holder).__name__} {str(holder)[:200]!r}")
                elif not gc.is_tracked(inner) and id(inner) not in seen and isinstance(inner, (tuple, dict, frozenset)):
                    seen.add(id(inner))
                    waiting.append(inner)
    return found


for theirs in ("chat", "messages", "responses"):
    serve(theirs)
run()
for _ in range(3):
    gc.collect()
sys.stdout.write("\\n".join(f"{text!r} in {holder}" for text, holder in left().items()))
'''


def test_nothing_of_a_tenant_is_left_behind_its_server(tmp_path: Path) -> None:
    """Tools, schemas, prompts, names, keys and headers, of a gateway and of an agent, on every pair of wires."""
    script = tmp_path / "left.py"
    script.write_text(_SCRIPT)
    command = [sys.executable, script]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603  our own
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout == ""
