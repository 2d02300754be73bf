"""Single lies, each one thing that servers were seen to do: a table.

`breaks` is the guarantee that names the lie, `also` what cannot hold beside it, `owner` whose fault it is as far as an
exchange tells: what only a model can do is the model's. Most are told on the chat wire.
"""

from typing import Any

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.core.reply import Usage
from mustcall.testing.probed import ways
from mustcall.testing.probed.honest import asked_text
from mustcall.testing.probed.lying import Lie
from mustcall.testing.probed.ways import (
    NAMED,
    NONE,
    REQUIRED,
    SEVERAL,
    always,
    calls,
    every,
    fails,
    has_strict,
    has_tools,
    on,
    reasons,
    renamed,
    schema_says,
    streams,
    takes_as,
    tools_over,
    turns,
    with_id,
    with_usage,
    writes,
)

__all__ = ["LIES", "find_lie"]

_CRASH = "Internal Server Error"


def find_lie(name: str) -> Lie:
    """Return the lie of this name; raise `ConfigError` naming those there are."""
    for lie in LIES:
        if lie.name == name:
            return lie
    raise ConfigError(f"there is no lie {name!r}; there are: {', '.join(lie.name for lie in LIES)}")


def _lie(name: str, breaks: str, owner: str = "server", *also: str, **how: Any) -> Lie:
    return Lie(name=name, breaks=breaks, owner=owner, also=frozenset(also), **how)


# fmt: off
_CHOICE = (
    _lie("ignores_named", "named", reads=takes_as(every(NAMED, SEVERAL), tool_choice=None)),
    _lie("names_the_first", "named", reads=ways.first_tool),
    _lie("ignores_named_in_streams", "named", "transport",
         reads=takes_as(every(NAMED, SEVERAL, streams), tool_choice=None)),
    _lie("refuses_named_while_reasoning", "named",
         sends=fails(every(NAMED, SEVERAL, reasons), 400, "tool_choice is incompatible with thinking")),
    _lie("calls_under_none", "none", reads=takes_as(NONE, tool_choice=None)),
    _lie("calls_under_none_in_streams", "none", "transport", reads=takes_as(every(NONE, streams), tool_choice=None)),
    _lie("ignores_required", "required", reads=takes_as(REQUIRED, tool_choice=None)),
    _lie("ignores_required_in_streams", "required", "transport",
         reads=takes_as(every(REQUIRED, streams), tool_choice=None)),
    _lie("ignores_required_while_reasoning", "required", reads=takes_as(every(REQUIRED, reasons), tool_choice=None)),
    _lie("refuses_required", "required", verdict="refused",
         sends=fails(REQUIRED, 400, "tool_choice 'required' is not supported")),
    _lie("crashes_under_required", "required", verdict="crashed", sends=fails(REQUIRED, 500, _CRASH)),
    _lie("crashes_streaming_tools", "auto", "server", "none", "required", "named", verdict="crashed",
         sends=fails(every(streams, has_tools), 500, _CRASH)),
    _lie("never_calls_alone", "auto", "model", "parallel.on", "tools.1", "tools.32", "tools.128",
         reads=takes_as(lambda asked: not (REQUIRED(asked) or NAMED(asked)), tools=(), tool_choice=None)),
    # Calls written as text, by the parser of streams.
    *(_lie(f"leaks_{dialect}_in_streams", "leaks", "parser", "auto", "required", "named", says=ways.leaks(dialect))
      for dialect in ("hermes", "mistral_json", "qwen3_coder", "kimi_k2", "llama3_json")),
    _lie("drops_parallel_false", "parallel.off",
         reads=takes_as(lambda asked: asked.request.parallel_tool_calls is False, parallel_tool_calls=True)),
    _lie("never_parallel", "parallel.on", "model", reads=takes_as(always, parallel_tool_calls=False)),
)
_SCHEMAS = (
    _lie("drops_strict", "strict", says=turns(has_strict, calls(writes("colour", "purple")))),
    _lie("flattens_nested", "schema.nested", "model", says=calls(writes("line", "1,2 to 3,9"))),
    _lie("refuses_ref", "schema.ref", verdict="refused",
         sends=fails(schema_says("$ref"), 400, "Invalid schema for function 'tool': $ref is not supported")),
    _lie("crashes_on_union", "schema.union", verdict="crashed", sends=fails(schema_says("anyOf"), 500, _CRASH)),
    _lie("refuses_null", "schema.null", verdict="refused",
         sends=fails(schema_says('"null"'), 400, "Invalid schema for function 'tool': type must be a string")),
    _lie("ignores_enum", "schema.enum", "model",
         says=turns(lambda asked: not has_strict(asked), calls(writes("colour", "chartreuse")))),
    _lie("refuses_empty_schema", "schema.empty", verdict="refused",
         sends=fails(schema_says('"properties":{}'), 400, "Invalid schema for function 'tool': no properties")),
    _lie("adds_properties", "schema.closed", "model",
         says=turns(lambda asked: "with the note" in asked_text(asked.request), calls(ways.with_more))),
    _lie("ignores_format", "format", "server", "format+tools", reads=takes_as(always, output=None)),
    _lie("ignores_format_with_tools", "format+tools", reads=takes_as(has_tools, output=None)),
    _lie("refuses_format_with_tools", "format+tools", verdict="refused",
         sends=fails(every(has_tools, ways.has_format), 400, "response_format cannot be used with tools")),
)
_REPORTS = (
    _lie("cuts_names", "name.long", says=calls(renamed(lambda name: name[:40]))),
    _lie("folds_names", "name.odd", says=calls(renamed(lambda name: name.lower().replace("-", "_")))),
    _lie("refuses_long_ids", "id.long", verdict="refused",
         sends=fails(ways.has_id(lambda key: len(key) > 40), 400, "Invalid 'tool_call_id': string too long")),
    _lie("refuses_odd_ids", "id.odd", verdict="refused",
         sends=fails(ways.has_id(lambda key: "-" in key), 400, "Invalid 'tool_call_id': only letters and digits")),
    _lie("wants_ids_of_nine_letters", "id.long", "server", "id.odd", verdict="refused",
         says=calls(ways.with_nine_letters),
         sends=fails(ways.has_id(lambda key: len(key) != 9 or not key.isalnum()), 400,
                     "Tool call id must be a-z, A-Z, 0-9, with a length of 9.")),
    _lie("leaves_out_ids", "ids", says=calls(with_id(""))),
    _lie("repeats_ids", "ids", says=calls(with_id("call_0"))),
    _lie("glues_arguments_in_streams", "arguments", says=turns(streams, calls(ways.twice))),
    _lie("finishes_with_stop", "finish", says=ways.finishes("stop")),
    _lie("finishes_with_calls", "finish", says=ways.finishes("tool_calls")),
    _lie("counts_nothing", "usage", says=with_usage(None)),
    _lie("counts_too_little", "usage", says=with_usage(Usage(input_tokens=1, output_tokens=1))),
    _lie("cuts_prompts", "context", reads=ways.cuts_prompt, says=ways.cuts_count),
    _lie("ignores_max_tokens", "cut", says=ways.runs_on),
    _lie("hides_the_cut", "cut", says=ways.says_done),
)
_HISTORY = (
    _lie("loses_results", "result.round_trip", "model", reads=ways.loses_results),
    _lie("refuses_two_results", "result.parallel", verdict="refused",
         sends=fails(lambda asked: ways.results_in_a_row(asked) > 1, 400, "only one tool message may follow")),
    _lie("refuses_images", "result.image", wire=Wire.MESSAGES, verdict="refused",
         sends=fails(lambda asked: b'"image"' in asked.recorded.raw, 400, "images are not supported")),
    _lie("loses_reasoning", "reasoning.shown", "model", reads=takes_as(always, reasoning=None)),
    _lie("refuses_returned_reasoning", "reasoning.returned", wire=Wire.MESSAGES, verdict="refused",
         sends=fails(lambda asked: ways.hands_back(asked, with_reasoning=True), 400, "thinking is not taken")),
    _lie("refuses_dropped_reasoning", "reasoning.dropped", wire=Wire.RESPONSES, verdict="refused",
         sends=fails(lambda asked: ways.hands_back(asked, with_reasoning=False), 400, "Expected thinking")),
    _lie("takes_any_signature", "reasoning.altered", wire=Wire.MESSAGES, sends=ways.takes_any_signature),
    _lie("forgets_previous_response", "previous_response", wire=Wire.RESPONSES,
         reads=takes_as(always, previous_response_id=None)),
    _lie("stores_nothing", "stored_response", wire=Wire.RESPONSES, verdict="refused",
         path=on("/responses/", 404, "Response not found.")),
    _lie("has_no_count_tokens", "count_tokens", wire=Wire.MESSAGES, verdict="refused",
         path=on("/count_tokens", 404, "Not found")),
    _lie("counts_one_token", "count_tokens", wire=Wire.MESSAGES, path=ways.counts_one),
)
_LIMITS = (
    _lie("refuses_128_tools", "tools.128", verdict="refused",
         sends=fails(tools_over(64), 400, "too many tools: at most 64")),
    _lie("crashes_with_32_tools", "tools.32", "server", "tools.128", verdict="crashed",
         sends=fails(tools_over(16), 500, _CRASH)),
    _lie("garbles_unicode", "unicode", says=calls(ways.garbled)),
    _lie("ignores_stop", "stop", reads=takes_as(always, stop=())),
    _lie("hangs_on_cancel", "cancel", sends=fails(lambda asked: asked.left, 500, "slot unavailable")),
    _lie("writes_odd_errors", "error.shape", "server", "error.not_offered",
         sends=ways.odd_errors, path=ways.odd_refusals),
    _lie("crashes_on_nonsense", "error.shape", verdict="crashed", path=ways.crashes_on_nonsense),
    _lie("answers_unknown_choice", "error.not_offered", sends=ways.answers_unknown_choice),
    _lie("tells_no_wait", "retry_after", sends=ways.limits_rate(told=False)),
    _lie("mixes_up_requests", "concurrency.8", reads=ways.mixes_up),
)
# fmt: on

LIES: tuple[Lie, ...] = (*_CHOICE, *_SCHEMAS, *_REPORTS, *_HISTORY, *_LIMITS)
