"""How often a demanded call is made and valid on the embedded model: through the gateway, and by the model alone.

`python benchmarks/embedded.py [--prompts 200] [--bare 50]` asks each prompt with `required` or a named tool, the wires
in turn, and prints a table. The prompts are made from templates that none of the decisions were tuned on. `bare` is the
same model with the request as it is (protocol `off`), as a server would answer it.
"""

import argparse
import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from itertools import cycle
from typing import Any, NamedTuple

import jsonschema_rs

from mustcall.engine.turns import OperatorSettings
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Protocol
from mustcall.testing.gateway import RunningGateway
from mustcall.upstream.embedded.catalogue import FALLBACK, find_weights
from mustcall.upstream.embedded.fetching import pull
from mustcall.upstream.embedded.store import WeightStore

WIRES = ("chat", "responses", "messages")
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


class Asked(NamedTuple):
    """A prompt, the tools beside it, and the call that would be right."""

    message: str
    tools: tuple[str, ...]
    right: str
    arguments: dict[str, Any]


def _schema(required: list[str], **properties: str) -> dict[str, Any]:
    declared = {name: {"type": kind} for name, kind in properties.items()}
    return {"type": "object", "properties": declared, "required": required, "additionalProperties": False}


TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "find_flights": (
        "Find flights between two cities.",
        _schema(["origin", "destination"], origin="string", destination="string"),
    ),
    "convert_currency": (
        "Convert an amount of money.",
        _schema(["amount", "currency"], amount="integer", currency="string"),
    ),
    "play_album": ("Play an album of an artist.", _schema(["artist"], artist="string")),
    "get_stock_price": ("Get the price of a stock.", _schema(["symbol"], symbol="string")),
    "open_ticket": ("Open a support ticket.", _schema(["title"], title="string", priority="integer")),
    "delete_file": ("Delete a file.", _schema(["path"], path="string")),
    "lookup_word": ("Look a word up in the dictionary.", _schema(["word"], word="string")),
    "dim_lights": ("Dim the lights of a room.", _schema(["room", "percent"], room="string", percent="integer")),
    "order_pizza": ("Order a pizza.", _schema(["topping"], topping="string", count="integer")),
    "show_map": ("Show a map of a place.", _schema(["place"], place="string")),
}  # fmt: skip

#: For each tool: templates, and the values that go into them.
TEMPLATES: dict[str, tuple[tuple[str, ...], tuple[dict[str, Any], ...]]] = {
    "find_flights": (
        ("Find flights from {origin} to {destination}.", "I want to fly from {origin} to {destination}.",
         "Any flights between {origin} and {destination}?", "Which flights go from {origin} to {destination}?"),
        ({"origin": "Berlin", "destination": "Madrid"}, {"origin": "Quito", "destination": "Bogota"},
         {"origin": "Seoul", "destination": "Osaka"}, {"origin": "Dublin", "destination": "Boston"},
         {"origin": "Nairobi", "destination": "Lagos"}),
    ),
    "convert_currency": (
        ("Convert {amount} dollars into {currency}.", "How much is {amount} dollars in {currency}?",
         "Change {amount} into {currency} please.", "I need {amount} as {currency}, convert the currency."),
        ({"amount": 20, "currency": "euros"}, {"amount": 350, "currency": "yen"}, {"amount": 75, "currency": "pesos"},
         {"amount": 1200, "currency": "francs"}, {"amount": 9, "currency": "rupees"}),
    ),
    "play_album": (
        ("Play an album by {artist}.", "Put on the new {artist} album.", "I would like to hear {artist}, any album.",
         "Play {artist}."),
        ({"artist": "Miles Davis"}, {"artist": "Björk"}, {"artist": "Nina Simone"}, {"artist": "Radiohead"},
         {"artist": "Fela Kuti"}),
    ),
    "get_stock_price": (
        ("What is the stock price of {symbol}?", "Get me the price of {symbol} stock.", "How is {symbol} trading?",
         "Price of {symbol}?"),
        ({"symbol": "AAPL"}, {"symbol": "TSLA"}, {"symbol": "NVDA"}, {"symbol": "SAP"}, {"symbol": "SHEL"}),
    ),
    "open_ticket": (
        ("Open a ticket: {title}.", "Please open a support ticket called {title}.", "File a ticket about {title}",
         "Support ticket for {title}, now."),
        ({"title": "printer broken"}, {"title": "login fails"}, {"title": "slow laptop"}, {"title": "wifi down"},
         {"title": "missing invoice"}),
    ),
    "delete_file": (
        ("Delete {path}", "Remove the file {path}.", "Please delete the file at {path}.", "Get rid of {path}."),
        ({"path": "/var/log/old.log"}, {"path": "draft.docx"}, {"path": "~/tmp/a.csv"}, {"path": "/srv/data/x.bin"},
         {"path": "report.pdf"}),
    ),
    "lookup_word": (
        ("Look up the word {word}.", "What does the word {word} mean?", "Find {word} in the dictionary.",
         "Dictionary entry for {word}?"),
        ({"word": "ubiquitous"}, {"word": "petrichor"}, {"word": "obfuscate"}, {"word": "zeitgeist"},
         {"word": "serendipity"}),
    ),
    "dim_lights": (
        ("Dim the lights in the {room} to {percent} percent.", "Set the {room} lights to {percent}.",
         "{room} lights at {percent} percent please.", "Make the lights of the {room} {percent} percent bright."),
        ({"room": "kitchen", "percent": 30}, {"room": "bedroom", "percent": 10}, {"room": "hall", "percent": 55},
         {"room": "office", "percent": 80}, {"room": "garage", "percent": 5}),
    ),
    "order_pizza": (
        ("Order a pizza with {topping}.", "I want {topping} on my pizza, order it.", "One {topping} pizza please.",
         "Get us a pizza, topping {topping}."),
        ({"topping": "mushrooms"}, {"topping": "ham"}, {"topping": "olives"}, {"topping": "spinach"},
         {"topping": "extra cheese"}),
    ),
    "show_map": (
        ("Show me a map of {place}.", "Open the map of {place}.", "Where is {place}? Show the map.", "Map of {place}"),
        ({"place": "Lisbon"}, {"place": "New Zealand"}, {"place": "Mount Etna"}, {"place": "Hyde Park"},
         {"place": "Patagonia"}),
    ),
}  # fmt: skip


def prompts(count: int) -> list[Asked]:
    """Return prompts of every tool in turn, each with one to three other tools beside it."""
    names = list(TOOLS)
    made: list[Asked] = []
    for number in range(count):
        right = names[number % len(names)]
        templates, values = TEMPLATES[right]
        turn = number // len(names)
        arguments = values[turn % len(values)]
        others = [names[(number + 3 * step + turn) % len(names)] for step in range(1, 2 + number % 3)]
        tools = tuple(sorted({right, *others}))
        made.append(
            Asked(templates[(turn // len(values)) % len(templates)].format(**arguments), tools, right, arguments)
        )
    return made


def _body(wire: str, asked: Asked, *, named: bool, most: int) -> dict[str, Any]:
    declared = [(name, *TOOLS[name]) for name in asked.tools]
    message = [{"role": "user", "content": asked.message}]
    if wire == "chat":
        functions = [{"name": n, "description": d, "parameters": s} for n, d, s in declared]
        choice: Any = {"type": "function", "function": {"name": asked.right}} if named else "required"
        tools: list[Any] = [{"type": "function", "function": function} for function in functions]
        return {"model": "local", "messages": message, "tools": tools, "tool_choice": choice, "max_tokens": most}
    if wire == "responses":
        tools = [{"type": "function", "name": n, "description": d, "parameters": s} for n, d, s in declared]
        choice = {"type": "function", "name": asked.right} if named else "required"
        return {"model": "local", "input": message, "tools": tools, "tool_choice": choice, "max_output_tokens": most}
    tools = [{"name": n, "description": d, "input_schema": s} for n, d, s in declared]
    choice = {"type": "tool", "name": asked.right} if named else {"type": "any"}
    return {"model": "local", "messages": message, "tools": tools, "tool_choice": choice, "max_tokens": most}


def _calls(wire: str, reply: Any) -> list[tuple[str, Any]]:
    try:
        if wire == "chat":
            made: list[Any] = reply["choices"][0]["message"].get("tool_calls") or []
            return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in made]
        if wire == "responses":
            items = [item for item in reply["output"] if item["type"] == "function_call"]
            return [(item["name"], json.loads(item["arguments"])) for item in items]
        return [(block["name"], block["input"]) for block in reply["content"] if block["type"] == "tool_use"]
    except (KeyError, ValueError, TypeError):
        return []


def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})  # noqa: S310  loopback
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:  # noqa: S310  loopback
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


class Score:
    """Counts of one way to ask."""

    def __init__(self) -> None:
        self.asked = self.valid = self.tool = self.arguments = 0
        self.seconds = 0.0

    def take(self, asked: Asked, calls: list[tuple[str, Any]], *, named: bool) -> None:
        """Count one reply."""
        self.asked += 1
        if len(calls) != 1:
            return
        name, arguments = calls[0]
        offered = (asked.right,) if named else asked.tools
        if name not in offered or not jsonschema_rs.is_valid(TOOLS[name][1], arguments):
            return
        self.valid += 1
        self.tool += name == asked.right
        right = name == asked.right and all(
            str(arguments.get(key)).lower() == str(value).lower() for key, value in asked.arguments.items()
        )
        self.arguments += right

    def row(self, name: str) -> str:
        """Return a line of the table."""
        share = [
            f"{count} ({100 * count / max(1, self.asked):.0f} %)" for count in (self.valid, self.tool, self.arguments)
        ]
        return f"| {name} | {self.asked} | {' | '.join(share)} | {self.seconds / max(1, self.asked):.2f} s |"


def _run(gateway: RunningGateway, asked: list[Asked], scores: dict[str, Score], *, most: int) -> None:
    for number, (one, wire) in enumerate(zip(asked, cycle(WIRES), strict=False)):
        named = number % 4 == 3
        began = time.perf_counter()
        reply = _post(gateway.url + PATHS[wire], _body(wire, one, named=named, most=most))
        for score in (scores[wire], scores["all"]):
            score.take(one, _calls(wire, reply), named=named)
            score.seconds += time.perf_counter() - began


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line: how many prompts through mustcall, and how many to the model alone."""
    parser = argparse.ArgumentParser(description="How often a demanded call is made and valid on the embedded model.")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--bare", type=int, default=50)
    return parser.parse_args(arguments)


def main() -> None:
    """Ask everything and print the table."""
    options = read_options()
    pull(find_weights(FALLBACK), WeightStore())
    flag = f"local:chat=embedded:{FALLBACK}"
    asked = prompts(options.prompts)
    scores = {name: Score() for name in (*WIRES, "all")}
    with RunningGateway(flag) as gateway:
        _run(gateway, asked, scores, most=400)
    bare = {name: Score() for name in (*WIRES, "all")}
    with RunningGateway(flag, operator=OperatorSettings(controls=Controls(protocol=Protocol.OFF))) as gateway:
        _run(gateway, asked[: options.bare], bare, most=100)
    print("| | prompts | valid call | right tool | right arguments | time each |")
    print("|---|---|---|---|---|---|")
    for wire in WIRES:
        print(scores[wire].row(f"mustcall, {wire}"))
    print(scores["all"].row("**mustcall, all wires**"))
    print(bare["all"].row("the model alone"))


if __name__ == "__main__":
    main()
