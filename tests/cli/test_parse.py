"""`mustcall parse`: a reply in, calls and the rest out."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dialects.scanning import load
from mustcall.cli.inspecting.parse import command
from mustcall.dialects import DIALECTS

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    },
}
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'


def run(text: str | bytes, *arguments: str) -> Result:
    """Run the command on a text."""
    return CliRunner().invoke(command, list(arguments), input=text)


def run_lines(*lines: dict[str, Any], arguments: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Run the command with --jsonl and return the objects it printed."""
    result = run("".join(json.dumps(line) + "\n" for line in lines), "--jsonl", *arguments)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_table() -> None:
    """Without options the calls, what was malformed and the text are printed for people."""
    result = run(f"<think>hm</think>Hello.\n{CALL}\n<tool_call>{{oops")
    assert result.exit_code == 0
    assert result.stdout == (
        "call         dialect  arguments\n"
        'get_weather  hermes   {"city": "Paris"}\n'
        "malformed (bad_json, hermes): '<tool_call>{'\n"
        "\nreasoning:\nhm\n"
        "\ntext:\nHello.\n\n<tool_call>{oops\n"
    )
    assert run("Hello.").stdout == "no calls\n\ntext:\nHello.\n"


def test_json() -> None:
    """With --json one object holds the calls with their arguments as an object, the text and the reports."""
    output = json.loads(run(f"Hello {CALL}", "--json").stdout)
    assert output == {
        "calls": [{"name": "get_weather", "arguments": {"city": "Paris"}, "dialect": "hermes"}],
        "text": "Hello ",
        "reasoning": "",
        "malformed": [],
    }


def test_lines() -> None:
    """Rule 58: each line gives one line; text and chunks are the same; a line's tools and dialect are its own."""
    outputs = run_lines(
        {"text": f"a {CALL}"},
        {"chunks": ["a <tool_", *CALL.removeprefix("<tool_")]},
        {"text": CALL, "tools": [{"type": "function", "function": {"name": "other"}}]},
        {
            "text": "<tool_call>get_weather<arg_key>days</arg_key><arg_value>3</arg_value></tool_call>",
            "tools": [WEATHER],
        },
        {"text": CALL, "dialect": "lmstudio"},
        {"text": f"<think>{CALL}</think>", "dialect": None, "tools": None},
        {"text": "Tool: f(x=1)"},
    )
    assert outputs[0] == outputs[1]
    assert outputs[0]["calls"] == [{"name": "get_weather", "arguments": {"city": "Paris"}, "dialect": "hermes"}]
    assert outputs[2]["calls"] == []
    assert outputs[2]["text"] == CALL
    assert [report["reason"] for report in outputs[2]["malformed"]] == ["unknown_tool"]
    assert outputs[3]["calls"] == [{"name": "get_weather", "arguments": {"days": 3}, "dialect": "glm"}]
    assert outputs[4] == {"calls": [], "text": CALL, "reasoning": "", "malformed": []}
    assert (outputs[5]["calls"], outputs[5]["text"], outputs[5]["reasoning"]) == ([], "", CALL)
    assert outputs[6]["calls"] == [{"name": "f", "arguments": {"x": 1}, "dialect": "tool_line"}]


@pytest.mark.parametrize("dialect", [dialect.name for dialect in DIALECTS if dialect.name != "python_line"])
def test_every_dialect_by_name(dialect: str) -> None:
    """Every dialect can be chosen by name, without tools."""
    item = next(item for item in load(dialect) if item.kind == "parallel")
    (output,) = run_lines({"text": item.text, "dialect": dialect})
    assert [call["name"] for call in output["calls"]] == ["get_weather", "get_time"]
    assert output["text"] == ""


def test_tools_from_a_file(tmp_path: Path) -> None:
    """The offered tools may come from a file in the chat wire's shape; without any every name counts."""
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([WEATHER]))
    other = CALL.replace("get_weather", "rm")
    assert json.loads(run(other, "--json", "--tools", str(tools)).stdout)["calls"] == []
    assert json.loads(run(other, "--json").stdout)["calls"][0]["name"] == "rm"
    (output,) = run_lines({"text": other}, arguments=("--tools", str(tools)))
    assert output["calls"] == []


def test_options() -> None:
    """--strict leaves out loose formats, --dialect others, --reasoning-open begins in a reasoning section."""
    assert json.loads(run("Tool: f(x=1)", "--json", "--strict").stdout)["calls"] == []
    assert json.loads(run(CALL, "--json", "--dialect", "glm").stdout)["calls"] == []
    assert json.loads(run("hm</think>Hi", "--json", "--reasoning-open").stdout)["reasoning"] == "hm"
    assert json.loads(run("hm\n</think>\nHi", "--json").stdout)["reasoning"] == "hm\n"


def test_numbers_keep_their_digits() -> None:
    """Arguments are printed as the model wrote them, also where a float could not hold them."""
    text = CALL.replace('"Paris"', "123456789012345678901234567890.10")
    assert "123456789012345678901234567890.10" in run(text, "--json").stdout


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 1"),
        ("[]", "line 1"),
        ("{}", "line 1: give either `text` or `chunks`"),
        ('{"text": "a", "dialect": "klingon"}', "line 1: unknown dialect 'klingon'"),
        ('{"text": "a", "tools": [{"type": "function"}]}', "line 1"),
        ('{"text": 1}', "line 1"),
    ],
)
def test_bad_lines(line: str, said: str) -> None:
    """A line that cannot be read is an error that names the line."""
    result = run(line + "\n", "--jsonl")
    assert result.exit_code == 1
    assert said in result.output


def test_a_bad_line_does_not_stop_the_others() -> None:
    """A line that cannot be read gives an error in its place; the others are read, and the exit status tells."""
    lines = [json.dumps({"text": CALL}), "{", "", '{"text": "\\ud800"}', "[" * 100_000, json.dumps({"text": "Hi."})]
    result = run("\n".join(lines), "--jsonl")
    assert result.exit_code == 1
    outputs = [json.loads(line) for line in result.stdout.splitlines()]
    assert [next(iter(output)) for output in outputs] == ["calls", "error", "error", "error", "calls"]
    assert outputs[1]["error"].startswith("line 2: ")
    assert outputs[-1]["text"] == "Hi."


def test_tools_that_are_no_functions() -> None:
    """Tools of other kinds are left out: they are no reason to refuse the line, and offer no name."""
    outputs = run_lines(
        {"text": CALL, "tools": [{"type": "web_search"}, WEATHER]},
        {"text": CALL, "tools": [{"type": "web_search"}]},
        {"text": CALL, "tools": [{"type": "custom", "name": "get_weather", "input_schema": {"type": "object"}}]},
    )
    assert [len(output["calls"]) for output in outputs] == [1, 0, 1]


def test_no_tools_offered(tmp_path: Path) -> None:
    """An empty list of tools offers none; only where no list is given every name counts."""
    tools = tmp_path / "tools.json"
    tools.write_text("[]")
    outputs = run_lines({"text": CALL, "tools": []}, {"text": CALL, "tools": None})
    assert [len(output["calls"]) for output in outputs] == [0, 1]
    assert json.loads(run(CALL, "--json", "--tools", str(tools)).stdout)["calls"] == []


def test_table_keeps_strings() -> None:
    """The table puts arguments on one line but changes no string in them."""
    text = CALL.replace('{"city": "Paris"}', '{\n  "city":\t"a  b \\"  c\u00a0 d"\n}')
    assert run(text).stdout.splitlines()[1] == 'get_weather  hermes   { "city": "a  b \\"  c\u00a0 d" }'


def test_bytes_that_are_not_text() -> None:
    """Input that is not UTF-8 is read all the same."""
    result = run(b"\xff\xfe " + CALL.encode(), "--json")
    assert [call["name"] for call in json.loads(result.stdout)["calls"]] == ["get_weather"]


def test_auto_and_others() -> None:
    """Rule 57: `auto` may be combined with dialects that are only looked for when named, which are asked first."""
    text = f'```json\n[{{"name": "get_weather", "arguments": {{}}}}]\n```\n{CALL}\nTool: f(x=1)'
    for names in (["auto", "xlam"], ["xlam", "auto", "hermes"]):
        chosen = [part for name in names for part in ("--dialect", name)]
        (line,) = run_lines({"text": text, "dialect": names})
        assert json.loads(run(text, "--json", *chosen).stdout) == line
        assert [call["dialect"] for call in line["calls"]] == ["xlam", "hermes", "tool_line"]
    (line,) = run_lines({"text": text, "dialect": "auto"})
    assert line == run_lines({"text": text})[0] == run_lines({"text": text, "dialect": ["auto"]})[0]
    assert [call["dialect"] for call in line["calls"]] == ["fenced_json", "hermes", "tool_line"]
    assert "klingon" in run(text, "--dialect", "auto", "--dialect", "klingon").output


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[", "no JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("{}", "tools must be a list, not an object"),
        ("[1]", "tool 1: it must be an object, not a number"),
        ('[{"name": "a"}, {"type": "function"}]', "tool 2: it has no `name`"),
        ('[{"name": "a"}, {"function": {"name": 3}}]', "tool 2: `name` must be a string, not 3"),
        ('[{"function": "f"}]', "tool 1: `function` must be an object, not a string"),
        ('[{"name": "a", "parameters": []}]', "tool 1: `parameters` of 'a' must be an object, not a list"),
        ('[{"name": "a", "input_schema": true}]', "tool 1: `input_schema` of 'a' must be an object, not a boolean"),
    ],
)
def test_a_bad_tools_file(tmp_path: Path, content: str, said: str) -> None:
    """What is wrong with the tools is said with the file's name, the tool's place in it and the reason."""
    tools = tmp_path / "tools.json"
    tools.write_text(content)
    result = run("Hi.", "--tools", str(tools))
    assert result.exit_code == 2
    assert f"{tools}: {said}" in result.output.replace("\n", "")
    if content.startswith("[{"):
        line = run(json.dumps({"text": "Hi.", "tools": json.loads(content)}), "--jsonl")
        assert json.loads(line.stdout) == {"error": f"line 1: {said}"}


@pytest.mark.parametrize("value", ["Paris", "a\nb", "a\u2028b\u2029c\x85d", "a \\ b"])
def test_one_line_a_record(value: str) -> None:
    """A record is one line, whatever line breaks stand in the arguments or the text."""
    written = json.dumps({"city": value}, indent=2, ensure_ascii=False)
    text = f'So\u2028\x85.\n<tool_call>{{"name": "get_weather",\r\n"arguments": {written}}}</tool_call>'
    for lines in ([{"text": text}], [{"text": text}] * 3):
        printed = run("".join(json.dumps(line) + "\n" for line in lines), "--jsonl").stdout.splitlines()
        assert len(printed) == len(lines)
        for line in printed:
            assert json.loads(line)["calls"][0]["arguments"] == {"city": value}
            assert json.loads(line)["text"] == "So\u2028\x85.\n"


@pytest.mark.parametrize("end", ["</seed:think>", "[/THINK]", "<|END_THINKING|>", "<channel|>", "<|end|>"])
def test_a_section_the_prompt_opened(end: str) -> None:
    """Rule 65: with --reasoning-open the end of any family's section ends it."""
    result = run(f"hm {CALL}\n{end}\nHello.", "--json", "--reasoning-open")
    assert (json.loads(result.stdout)["calls"], json.loads(result.stdout)["text"]) == ([], "Hello.")
