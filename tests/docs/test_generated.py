"""The docs say what the code says: generated pages are up to date, settings and codes are all there, examples work."""

import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from mustcall.core import errors
from mustcall.core.errors import ConfigError, ModelError, MustcallError
from mustcall.core.verdict import TOOL_PROBE, Verdict
from mustcall.gateway import request_controls
from mustcall.gateway.config.settings import ServerSettings, load_settings
from mustcall.gateway.config.upstream_settings import UpstreamSettings
from mustcall.policy.facts.controls import Controls, Limits, ToolControls
from mustcall.policy.facts.wording import Wording
from mustcall.policy.request.plan import RungKind

ROOT = Path(__file__).parents[2]
TURNS = (ROOT / "docs" / "turns.md").read_text(encoding="utf-8")
GATEWAY = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8")


def load(name: str) -> ModuleType:
    """Import a script of tools/."""
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(page: str, language: str) -> Iterator[str]:
    """The code blocks of a page."""
    yield from re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


# --- generated pages ----------------------------------------------------------------------------------------------


def test_generated_pages_are_up_to_date() -> None:
    """Rule 120: remedies, profiles, dialects and the tables of turns.md are what the code prints (`make docs`)."""
    assert "\n".join(change for _, change in load("pages").old()) == ""


def test_the_pictures_are_up_to_date() -> None:
    """Rule 120: the drawn pictures are what the imports and tables give (`make docs`), and each stands on a page."""
    pages = "".join(page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    for path, text in load("pictures").drawn():
        assert path.read_text(encoding="utf-8") == text
        assert f"pictures/{path.name}" in pages


def test_the_walk_names_files_that_are_there() -> None:
    """Every file and folder that architecture.md names is in the package or beside it."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", page)
    assert len(named) > 30
    assert [name for name in named if not ((root / "src" / "mustcall" / name).exists() or (root / name).exists())] == []


def test_every_region_is_on_the_page() -> None:
    """Rule 120: no generated table was lost from turns.md, and none is there that nobody writes."""
    assert sorted(re.findall(r"<!-- generated: (\w+) -->", TURNS)) == sorted(load("pages").REGIONS)
    assert TURNS.count("<!-- end -->") == len(load("pages").REGIONS)


def test_the_page_of_rules_is_up_to_date() -> None:
    """Rule 118: docs/rules.md names the tests there are (`make docs`)."""
    rules = load("rules")
    assert rules.PAGE.read_text(encoding="utf-8") == rules.page()


def test_every_rule_has_words_a_test_and_a_mark() -> None:
    """Rule 118: each rule stands in docs/rules.toml, a test names it, and what is not `whole` says why."""
    rules = load("rules")
    stated = [rule for _, group in rules.sections() for rule in group]
    assert list(rules.faults(stated, rules.proofs())) == []


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"words": ""}, "rule 3: no words"),
        ({"mark": "nearly"}, "rule 3: the mark 'nearly' is none of whole, part, not yet"),
        ({"mark": "part"}, "rule 3: 'part' and the reason '' do not go together"),
        ({"mark": "not yet"}, "rule 3: 'not yet' and the reason '' do not go together"),
        ({"reason": "Almost."}, "rule 3: 'whole' and the reason 'Almost.' do not go together"),
        ({"number": 4}, "the rules are not 1 to 150 in order"),
    ],
)
def test_faults_of_a_rule_are_found(changes: dict[str, Any], fault: str) -> None:
    """Rule 118: no words, an unknown mark, a mark without its reason and a wrong number are each said."""
    rules = load("rules")
    stated = [rules.Rule(number, "Words.", "whole", "") for number in range(1, 151)]
    named = {number: [("tests/test_a.py", "test_a")] for number in range(1, 151)}
    assert list(rules.faults(stated, named)) == []
    stated[2] = stated[2]._replace(**changes)
    assert fault in list(rules.faults(stated, named))


def test_a_rule_without_a_test_is_found() -> None:
    """Rule 118: a rule no test names is a fault unless it is marked `not yet`, and so is a test of no rule."""
    rules = load("rules")
    stated = [rules.Rule(number, "Words.", "whole", "") for number in range(1, 151)]
    named = {number: [("tests/test_a.py", "test_a")] for number in range(1, 152) if number != 7}
    assert list(rules.faults(stated, named)) == [
        "rule 151: a test names it, and there is no such rule",
        "rule 7: no test names it",
    ]
    stated[6] = stated[6]._replace(mark="not yet", reason="Later.")
    del named[151]
    assert list(rules.faults(stated, named)) == []
    named[7] = [("tests/test_a.py", "test_a")]
    assert list(rules.faults(stated, named)) == ["rule 7: tests name it, so it is more than 'not yet'"]


def test_reading_rule_numbers() -> None:
    """Rule 118: lists and ranges are read, other numbers are not."""
    numbers = load("rules").numbers
    assert numbers("Rule 45: …") == {45}
    assert numbers("Rules 12, 14 and 16: 3 times") == {12, 14, 16}
    assert numbers("Rules 100-102: …") == {100, 101, 102}
    assert numbers("It takes 5 rules.") == set()


# --- settings -----------------------------------------------------------------------------------------------------


def rows(kind: type[msgspec.Struct]) -> list[str]:
    """How the row of each setting begins: its name and its default."""
    defaults = msgspec.to_builtins(kind())
    return [f"| `{name}` | `{json.dumps(defaults[name])}` |" for name in kind.__struct_fields__ if name != "limits"]


@pytest.mark.parametrize("row", [row for kind in (Controls, Limits, ToolControls) for row in rows(kind)])
def test_every_setting_is_documented_with_its_default(row: str) -> None:
    """Rule 120: every setting of a turn stands in turns.md with its default."""
    assert f"\n{row} " in TURNS


def test_every_sentence_is_documented() -> None:
    """Rule 120: every directive stands in turns.md with its default, as an operator would write it."""
    for name in Wording.__struct_fields__:
        value: str | tuple[str, ...] = getattr(Wording(), name)
        assert f"\n| `{name}` | " in TURNS
        for sentence in (value,) if isinstance(value, str) else value:
            assert sentence.replace("\n", " ") in TURNS


def test_the_defaults_are_the_defaults() -> None:
    """Rule 120: the settings printed as defaults are the defaults, all of them."""
    block = next(text for text in blocks(TURNS, "toml") if text.startswith("[contract]"))
    table = tomllib.loads(block)["contract"]
    assert msgspec.convert(table, Controls) == Controls()
    # No setting, and no single tools, are what cannot be written down in TOML.
    assert set(table) == set(Controls.__struct_fields__) - {"protocol", "session", "tools"}
    assert set(table["limits"]) == set(Limits.__struct_fields__)


def test_server_and_upstream_settings_are_documented() -> None:
    """Rule 120: every setting of [server] and [[upstream]] stands in gateway.md, and the printed ones are defaults."""
    file = tomllib.loads(next(blocks(GATEWAY, "toml")))
    assert set(file["server"]) == set(ServerSettings.__struct_fields__)
    assert set(file["upstream"][0]) == set(UpstreamSettings.__struct_fields__)
    given = msgspec.convert({**file["server"], "client_keys_env": None}, ServerSettings)
    assert given == ServerSettings()


@pytest.mark.parametrize("page", [TURNS, GATEWAY], ids=["turns", "gateway"])
def test_examples_of_configuration_load(page: str, tmp_path: Path) -> None:
    """Rule 120: what stands in the docs as mustcall.toml is one."""
    upstream = '[[upstream]]\nname = "a"\nwire = "chat"\nbase_url = "http://127.0.0.1:9000/v1"\n'
    keys = {"ANTHROPIC_API_KEY": "k", "MY_KEYS": "k"}
    found = list(blocks(page, "toml"))
    assert found
    for number, text in enumerate(found):
        file = tmp_path / f"{number}.toml"
        file.write_text(text if "[[upstream]]" in text else f"{text}\n{upstream}", encoding="utf-8")
        assert load_settings(file, environment=keys).endpoints
        file.write_text(f"{text}\n[nonsense]\n{upstream}", encoding="utf-8")
        with pytest.raises(ConfigError):
            load_settings(file, environment=keys)


# --- headers, verdicts, errors ------------------------------------------------------------------------------------


def test_every_request_header_is_documented() -> None:
    """Rules 9, 120: every header a caller may send stands in turns.md with the setting it makes."""
    known: dict[str, tuple[str, Any]] = vars(request_controls)["CALLERS_HEADERS"]
    for name, (setting, _) in known.items():
        field = f"limits.{setting}" if setting == "extra_calls" else setting
        assert f"| `{request_controls.PREFIX}{name}` | `{field}` |" in TURNS


def test_every_reply_header_is_documented() -> None:
    """Rule 114: every header a reply may have stands on both pages."""
    source = (ROOT / "src" / "mustcall" / "gateway" / "replies.py").read_text(encoding="utf-8")
    headers = set(re.findall(r'b"(x-mustcall-[a-z-]+)"', source))
    assert len(headers) > 6
    for name in headers:
        assert f"| `{name}` |" in GATEWAY
        assert f"| `{name}` |" in TURNS or name == "x-mustcall-request-id"


def test_every_verdict_and_rung_is_explained() -> None:
    """Rule 34: the closed words of a turn are all explained."""
    section = TURNS.partition("## Verdicts")[2].partition("## Streaming")[0]
    for verdict in (*Verdict, TOOL_PROBE):
        assert f"`{verdict}`" in section
    ladder = TURNS.partition("## The force ladder")[2].partition("## Verdicts")[0]
    for kind in set(RungKind) - {RungKind.PLAIN}:
        assert f"\n| `{kind}` | " in ladder


def _leaves(kind: type[MustcallError]) -> Iterator[type[MustcallError]]:
    below = kind.__subclasses__()
    if not below:
        yield kind
    for one in below:
        yield from _leaves(one)


def test_every_error_code_is_documented() -> None:
    """Rule 48: every code a caller can get stands in the docs, with its status."""
    inside = {errors.ConfigError, errors.FetchFailed, errors.ToolError, errors.ToolRefused}
    inside |= {errors.RoleFailed, errors.QuorumMissed}  # not of a request
    inside |= {errors.LedgerMismatch, errors.UnknownTurn, errors.ContentsNotKept}  # of a start, of a command
    inside |= {errors.FenceLost, errors.AlreadyRecorded, errors.RunBusy, errors.UnknownRun}  # of a durable run
    for kind in set(_leaves(MustcallError)) - inside:
        if issubclass(kind, ModelError):
            assert f"\n| `{kind.code}` | `{kind.__name__}` | " in TURNS
            assert kind.status == 502
        else:
            status = r"\(its own\)" if kind is errors.UpstreamRejected else str(kind.status)
            assert re.search(rf"^\| {status} \|[^|]*`{kind.code}`", GATEWAY, re.MULTILINE), kind


def test_links_and_anchors_are_good() -> None:
    """What the pages point at exists, headings included."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        written = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)]+)\)", written):
            if target.startswith("https://"):
                continue
            file, _, anchor = target.partition("#")
            path = page.parent / file if file else page
            assert path.exists(), f"{page.name}: {target}"
            if anchor:
                heads = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
                slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
                assert anchor in slugs, f"{page.name}: {target}"


def test_the_glossary_is_short() -> None:
    """At most 25 terms, in alphabetical order, each on one line."""
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^\| (?!term|---)([^|]+?) \| [^|]+ \|$", page, re.MULTILINE)
    assert 20 <= len(terms) <= 25
    assert terms == sorted(terms)
