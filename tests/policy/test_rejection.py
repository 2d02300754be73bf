"""What refusals mean. The messages are as upstreams were seen to write them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import ErrorInfo
from mustcall.core.origin import Wire
from mustcall.policy.facts.profile import Forcing, Profile, Protocol
from mustcall.policy.failures.rejection import (
    LESSONS,
    SIGNS,
    Rejection,
    classify_rejection,
    harvest,
    holds_whole_generation,
    lesson,
    without_generation,
)
from mustcall.wire.registry import codec_for

R = Rejection


def refusal(message: str, status: int = 400, **fields: Any) -> ErrorInfo:
    """An upstream's error."""
    return msgspec.structs.replace(ErrorInfo(message=message, status=status, code="upstream_rejected"), **fields)


MESSAGES: list[tuple[str, Rejection]] = [
    ("Thinking may not be enabled when tool_choice forces tool use.", R.FORCE_WITH_REASONING),
    ("Error from provider (DeepSeek): Thinking mode does not support this tool_choice", R.FORCE_WITH_REASONING),
    (
        (
            "<400> InternalError.Algo.InvalidParameter: The tool_choice parameter does not support being set to "
            "required or object in thinking mode"
        ),
        R.FORCE_WITH_REASONING,
    ),
    ("tool_choice 'specified' is incompatible with thinking enabled", R.FORCE_WITH_REASONING),
    ("tool_choice 'required' is incompatible with thinking enabled", R.FORCE_WITH_REASONING),
    ('tool_choice: type "tool" and "any" are not supported for this model.', R.FORCE_UNSUPPORTED),
    (
        'The model returned the following errors: tool_choice: type "tool" and "any" are not supported for this model.',
        R.FORCE_UNSUPPORTED,
    ),
    ("deepseek-reasoner does not support this tool_choice", R.FORCE_UNSUPPORTED),
    ("No endpoints found that support the provided 'tool_choice' value.", R.FORCE_UNSUPPORTED),
    ('tool_choice must either be a named tool, "auto", or "none".', R.FORCE_UNSUPPORTED),
    ("Invalid tool_choice type: 'object'. Supported string values: none, auto, required", R.NAMED_UNSUPPORTED),
    ("Unsupported parameter: 'parallel_tool_calls' is not supported with this model.", R.PARALLEL_UNSUPPORTED),
    ("tool_choice.auto.disable_parallel_tool_use: Extra inputs are not permitted", R.PARALLEL_UNSUPPORTED),
    (
        "This model does not support assistant message prefill. The conversation must end with a user message.",
        R.PREFILL,
    ),
    ("Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant", R.PREFILL),
    ("Assistant response prefill is incompatible with enable_thinking.", R.PREFILL),
    ("messages.1.content.0: Invalid `signature` in `thinking` block", R.REASONING_STATE),
    (
        (
            "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different "
            'conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
        ),
        R.REASONING_STATE,
    ),
    (
        (
            "messages.21.content.1: thinking or redacted_thinking blocks in the latest assistant message cannot be "
            "modified. These blocks must remain as they were in the original response."
        ),
        R.REASONING_STATE,
    ),
    (
        "The encrypted content for item rs_1 could not be verified. Reason: Encrypted content could not be parsed.",
        R.REASONING_STATE,
    ),
    (
        "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'.",
        R.REASONING_STATE,
    ),
    ("Item 'rs_1' of type 'reasoning' was provided without its required following item.", R.REASONING_STATE),
    (
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
        R.REASONING_MISSING,
    ),
    ("The `reasoning_content` in the thinking mode must be passed back to the API.", R.REASONING_MISSING),
    ("Function call is missing a thought_signature in functionCall parts.", R.REASONING_MISSING),
    (
        (
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. When "
            "`thinking` is enabled, a final `assistant` message must start with a thinking block."
        ),
        R.REASONING_MISSING,
    ),
    ("messages.2.assistant.reasoning_content: property is unsupported", R.REASONING_FIELD),
    (
        (
            '"thinking.type.disabled" is not supported for this model. Use "thinking.type.adaptive" and '
            '"output_config.effort" to control thinking behavior.'
        ),
        R.REASONING_OFF_REFUSED,
    ),
    ("Reasoning is mandatory for this endpoint and cannot be disabled.", R.REASONING_OFF_REFUSED),
    ("Budget 0 is invalid. This model only works in thinking mode.", R.REASONING_OFF_REFUSED),
    ("The value of the enable_thinking parameter is restricted to True.", R.REASONING_OFF_REFUSED),
    ("registry.ollama.ai/library/gemma3:4b does not support tools", R.TOOLS_UNSUPPORTED),
    (
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        R.TOOLS_UNSUPPORTED,
    ),
    ("tools.118.custom.input_schema: JSON schema is invalid. It must match draft 2020-12", R.SCHEMA_UNSUPPORTED),
    (
        (
            'Invalid JSON payload received. Unknown name "$schema" at \'tools[0].function_declarations[0]'
            ".parameters': Cannot find field."
        ),
        R.SCHEMA_UNSUPPORTED,
    ),
    ("This response_format type is unavailable now", R.OUTPUT_UNSUPPORTED),
    ("This model does not support response format `json_schema`.", R.OUTPUT_UNSUPPORTED),
    ("Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.", R.GENERATION),
    ("prompt is too long: 210000 tokens > 200000 maximum", R.OVERFLOW),
    ("This model's maximum context length is 8192 tokens.", R.OVERFLOW),
    ("max_tokens: Field required", R.OTHER),
    ("tool_choice may only be specified while providing tools.", R.OTHER),
    ("Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.", R.OTHER),
    ("tools: Tool names must be unique.", R.OTHER),
    ('"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".', R.OTHER),
    ("Failed to parse tool call arguments as JSON: syntax error", R.OTHER),
    ("", R.OTHER),
]


@pytest.mark.parametrize(("message", "rejection"), MESSAGES, ids=[row[0][:60] for row in MESSAGES])
def test_known_words(message: str, rejection: Rejection) -> None:
    """Rule 33: each refusal as an upstream writes it is known for what it is, in any case."""
    assert classify_rejection(refusal(message)) is rejection
    assert classify_rejection(refusal(message.upper())) is rejection
    assert classify_rejection(refusal(message, 422)) is rejection


def test_prefill_is_known() -> None:
    """Rule 100: the exact refusal of a trailing assistant turn is known, and teaches that there is no prefill."""
    said = "This model does not support assistant message prefill. The conversation must end with a user message."
    assert classify_rejection(refusal(said)) is R.PREFILL
    assert lesson(R.PREFILL) == ("prefill", False)


@pytest.mark.parametrize(("message", "_"), MESSAGES[:20], ids=[row[0][:60] for row in MESSAGES[:20]])
@pytest.mark.parametrize("status", [401, 402, 403, 429, 503, 529])
def test_keys_money_and_load(message: str, _: Rejection, status: int) -> None:
    """Rule 33: what is refused for want of a key, money or time says nothing about the request."""
    assert classify_rejection(refusal(message, status)) is R.OTHER


def test_code_param_and_the_provider_behind_a_router_are_read() -> None:
    """Rule 33: the code, the parameter and what a router was told count like the message."""
    assert classify_rejection(refusal("no", code="invalid_encrypted_content")) is R.REASONING_STATE
    assert classify_rejection(refusal("Unsupported value.", param="tool_choice")) is R.FORCE_UNSUPPORTED
    assert classify_rejection(refusal("no", code="invalid_function_parameters")) is R.SCHEMA_UNSUPPORTED
    raw = '{"error":{"message":"tool_choice \'required\' is incompatible with thinking enabled"}}'
    body = {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}}
    error = codec_for(Wire.CHAT).decode_error(400, msgspec.json.encode(body))
    assert classify_rejection(error) is R.FORCE_WITH_REASONING


def test_lessons_fit_the_profile() -> None:
    """Rule 33: every lesson is a field of a profile and differs from the best case; the rest teach nothing."""
    assert lesson(R.FORCE_WITH_REASONING) == ("forced", Forcing.WITHOUT_REASONING)
    assert lesson(R.FORCE_UNSUPPORTED) == ("forced", Forcing.NEVER)
    assert lesson(R.NAMED_UNSUPPORTED) == ("named", False)
    assert lesson(R.TOOLS_UNSUPPORTED) == ("protocol", Protocol.PROMPT)
    assert lesson(R.REASONING_OFF_REFUSED) == ("reasoning_off", False)
    assert {field for field, _ in LESSONS.values()} <= set(Profile.__struct_fields__)
    for rejection in (R.GENERATION, R.OVERFLOW, R.OTHER, R.REASONING_STATE, R.REASONING_MISSING):
        assert lesson(rejection) is None


@pytest.mark.parametrize("sign", SIGNS, ids=lambda sign: " … ".join(sign.words)[:60])
def test_each_sign_can_decide(sign: Any) -> None:
    """Rule 33: no row of the table is dead: its own words are read as what it says."""
    assert all(words == words.lower() for words in sign.words)
    assert sign.observed in ("docs", "code", "issue", "measured", "assumed")
    assert classify_rejection(refusal(" : ".join(sign.words))) is sign.rejection


def groq(generation: Any, code: str = "tool_use_failed") -> bytes:
    """Groq's error body."""
    return msgspec.json.encode(
        {
            "error": {
                "message": "Failed to call a function. Please adjust your prompt. See 'failed_generation'.",
                "type": "invalid_request_error",
                "code": code,
                "failed_generation": generation,
            }
        }
    )


def test_harvest_groq() -> None:
    """Rule 128: the generation in Groq's error survives decoding, whole."""
    written = '<function=search>{"query": "' + "x" * 5000 + '"}</function>'
    error = codec_for(Wire.CHAT).decode_error(400, groq(written))
    assert classify_rejection(error) is R.GENERATION
    assert harvest(error) == written
    assert holds_whole_generation(error)


def test_harvest_an_object() -> None:
    """Rule 128: a generation that came as JSON is harvested as its text."""
    error = codec_for(Wire.RESPONSES).decode_error(400, groq({"name": "f", "arguments": {}}))
    assert harvest(error) == '{"name":"f","arguments":{}}'


@pytest.mark.parametrize("generation", ["", "  ", None, "Tool use failed: JSON does not match the expected schema"])
def test_nothing_to_harvest(generation: Any) -> None:
    """Rule 128: an error about a generation that shows none is known for what it is, and gives no text."""
    error = codec_for(Wire.CHAT).decode_error(400, groq(generation))
    assert classify_rejection(error) is R.GENERATION
    assert harvest(error) is None
    assert not holds_whole_generation(error)


@pytest.mark.parametrize("wire", list(Wire))
@pytest.mark.parametrize(("at", "whole"), [(0, True), (395, False)])
def test_harvest_llama_cpp(wire: Wire, at: int, whole: bool) -> None:
    """Rule 128: llama.cpp's parse error gives the text from where its parser gave up, on every wire it serves."""
    text = "<|tool_call_start|>[search(query='prompt is too long')]<|tool_call_end|>"
    message = f"Failed to parse input at pos {at}: {text}"
    body = msgspec.json.encode({"error": {"code": 500, "message": message, "type": "server_error"}})
    error = codec_for(wire).decode_error(500, body)
    assert classify_rejection(error) is R.GENERATION
    assert harvest(error) == text
    assert holds_whole_generation(error) is whole


def test_the_generation_is_kept_from_the_caller() -> None:
    """Rule 53: what an error shows of a discarded attempt can be taken out of it; other errors stay the same object."""
    plain = refusal("no", details={"error_code": "x"})
    assert without_generation(plain) is plain
    shown = codec_for(Wire.CHAT).decode_error(400, groq("<function=f>{}</function>"))
    kept = without_generation(shown)
    assert kept.details is None
    assert kept.message == shown.message
    parse = without_generation(refusal("Failed to parse input at pos 3: <tool_call>secret", 500))
    assert "secret" not in parse.message
    assert parse.message.startswith("Failed to parse input at pos 3 (")
    assert harvest(parse) is None
    assert without_generation(parse) is parse


ERRORS = st.builds(
    ErrorInfo,
    message=st.text(max_size=60) | st.sampled_from([row[0] for row in MESSAGES]),
    status=st.integers(400, 599),
    code=st.text(max_size=20),
    type=st.none() | st.text(max_size=20),
    param=st.none() | st.text(max_size=20),
    details=st.none()
    | st.dictionaries(
        st.sampled_from(["failed_generation", "provider_error", "x"]), st.none() | st.integers() | st.text(max_size=20)
    ),
)


@given(ERRORS)
def test_any_error(error: ErrorInfo) -> None:
    """Design 2.8: any error is classified without raising; without its generation nothing is left to harvest."""
    rejection = classify_rejection(error)
    assert isinstance(rejection, Rejection)
    text = harvest(error)
    clean = without_generation(error)
    assert harvest(clean) is None
    assert without_generation(clean) is clean
    if text is not None and error.status not in (401, 402, 403, 408, 409, 429, 503, 504, 529):
        assert rejection is R.GENERATION
