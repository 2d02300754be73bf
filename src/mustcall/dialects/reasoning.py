"""The reasoning sections, the control tokens models leak, the results they repeat and quotations, as data.

Which text is a section's is decided by the scanner; why it is decided so is told in
`docs/decisions/dialects-reasoning.md`. Channel headers (harmony, Muse) are markup with a grammar of their own and
open their sections from there.
"""

# ruff: noqa: RUF001 - the formats themselves are written with U+FF5C

from enum import IntEnum

import msgspec

__all__ = [
    "CONTROLS",
    "FIRST_CONTROLS",
    "INKLING_THOUGHT",
    "LATE_ENDS",
    "OPENED",
    "PARAGRAPH_ENDS",
    "QUOTATIONS",
    "QUOTATION_MARKS",
    "RESULTS",
    "SECTIONS",
    "Anchor",
    "Control",
    "Section",
]


class Anchor(IntEnum):
    """Where a marker counts: anywhere, where only blanks precede it on its line, or at the start of the reply.

    `BARE` is the very beginning of a line where no JSON or list stands open before it. A line, and the reply, begin
    anew after a complete call and after a reasoning section. `FIRST` is the reply's first character and nothing else.
    """

    ANYWHERE = 0
    LINE = 1
    BARE = 2
    START = 3
    FIRST = 4


class Section(msgspec.Struct, frozen=True):
    """A reasoning section: what opens it, where it is looked for, where it counts, and what closes it.

    An opener that is seen where it does not count is prose, and so is the closer that goes with it. What stands in
    `before` ends the section, too, and is read on its own.
    """

    opener: str
    closers: tuple[str, ...]
    anchor: Anchor = Anchor.ANYWHERE
    opens: Anchor = Anchor.ANYWHERE
    before: tuple[str, ...] = ()


class Control(msgspec.Struct, frozen=True):
    """A token that never was text. `after_reasoning` ones count only right behind a reasoning section."""

    marker: str
    after_reasoning: bool = False
    closer: str = ""


INKLING_THOUGHT = Section("<|content_thinking|>", ("<|end_message|>",))

SECTIONS = (
    Section("<think>", ("</think>",), opens=Anchor.LINE),
    Section("<thinking>", ("</thinking>",), opens=Anchor.LINE),
    Section("<seed:think>", ("</seed:think>",), opens=Anchor.LINE),
    Section("<mm:think>", ("</mm:think>",), opens=Anchor.LINE),
    Section("<think:opensource>", ("</think:opensource>",), opens=Anchor.LINE),
    Section("◁think▷", ("◁/think▷",)),
    Section("[THINK]", ("[/THINK]",)),
    Section("<|START_THINKING|>", ("<|END_THINKING|>",)),
    Section("<|channel>thought\n", ("<channel|>",)),
    Section("<|channel>thought", ("<channel|>",)),
    Section("<|inner_prefix|>", ("<|inner_suffix|>",)),
    Section("<|open|>think<|sep|>", ("<|close|>think<|sep|>",)),
    Section("<|think|>", ("<|end|>",), before=("<|begin|>",)),
    INKLING_THOUGHT,
    Section("Here is my thought process:", ("Here is my response:",), Anchor.START),
    Section("Here are my reasoning steps:", ("[BEGIN FINAL RESPONSE]",), Anchor.START),
)

# A section that the prompt opened. Whose it is nobody says here, so that the end of any ends it; those that are words
# count at the beginning of a line, and the header of a message (harmony, Muse) is read on its own.
OPENED = Section(
    "",
    (
        *(closer for section in SECTIONS for closer in section.closers if not closer.startswith("Here")),
        "\nHere is my response:",
        "<|eom|>",
        "<|return|>",
    ),
    before=("<|start|>", "<|begin|>", "<|message_model|>", "<|open|>response<|sep|>", "<|START_RESPONSE|>"),
)

# Results of tools, which models repeat or make up: what stands in them is quoted and no call (rule 122).
RESULTS = {
    "<tool_response>": "</tool_response>",
    "<tool_result>": "</tool_result>",
    "<function_results>": "</function_results>",
    "[TOOL_RESULT]": "[END_TOOL_RESULT]",
    "[TOOL_RESULTS]": "[/TOOL_RESULTS]",
}

# HTML that shows code, and comments: what stands in them is no call, either (rule 63). Inline code ends with its
# paragraph, as it does in ticks.
PARAGRAPH_ENDS = ("\n\n", "\r\n\r\n")
QUOTATIONS = {
    "<code>": ("</code>", *PARAGRAPH_ENDS),
    "<code ": ("</code>", *PARAGRAPH_ENDS),
    "<pre>": ("</pre>",),
    "<pre ": ("</pre>",),
    "<!--": ("-->",),
    "«": ("»", *PARAGRAPH_ENDS),
}
# Of these, one right behind a word closes a quotation (»so«) and opens none.
QUOTATION_MARKS = frozenset({"«"})

# Ends that show, without their start, that the prompt had opened the section: what only ends reasoning.
LATE_ENDS = (
    *("</think>", "</thinking>", "</seed:think>", "</mm:think>", "</think:opensource>", "◁/think▷", "[/THINK]"),
    *("<|END_THINKING|>", "<channel|>", "<|inner_suffix|>", "<|close|>think<|sep|>", "[BEGIN FINAL RESPONSE]"),
)

# The tokens of each family's templates, which are never text: they frame messages, name roles and end replies.
_TOKENS = {
    "ChatML": ("<|im_end|>", "<|im_sep|>", "<|endoftext|>", "<|startoftext|>"),
    "Llama": (
        *("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>"),
        *("<|start_header_id|>assistant<|end_header_id|>", "<|header_start|>assistant<|header_end|>"),
    ),
    "harmony": ("<|end|>", "<|return|>", "<|call|>", "<|message|>", "<|constrain|>", "<|channel|>", "<|start|>"),
    "Solar": ("<|begin|>assistant", "<|begin|>", "<|content|>", "<|flush|>"),
    "Phi, GLM": ("<|assistant|>", "<|user|>", "<|observation|>"),
    "Granite": ("<|start_of_role|>assistant<|end_of_role|>", "<|start_of_role|>", "<|end_of_role|>"),
    "Cohere": (
        *("<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|END_THINKING|>"),
        *("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    ),
    "Gemma": (
        *("<start_of_turn>model", "<end_of_turn>", "<|turn>model", "<turn|>"),
        *("<|channel>final\n", "<|channel>", "<channel|>"),
    ),
    "DeepSeek": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁sep｜>"),
    "Step": ("<｜tool_sep｜>",),
    "Kimi": (
        *("<|im_middle|>", "<|im_assistant|>assistant<|im_middle|>"),
        *("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>", "<|close|>think<|sep|>"),
    ),
    "Inkling": (
        *("<|message_model|>", "<|content_text|>", "<|content_tool_error|>", "<|content_model_end_sampling|>"),
        "<|end_message|>",
    ),
    "Apertus": ("<|assistant_start|>", "<|assistant_end|>", "<|inner_suffix|>"),
    "GigaChat": ("<|message_sep|>", "<|role_sep|>"),
    "InternLM": ("<|plugin|>",),
    "Apriel": ("[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]"),
    "Seed": ("<seed:bos>", "<seed:eos>"),
    "LongCat": ("<longcat_s>", "</longcat_s>"),
    "MiniMax": ("[e~[", "]~b]ai"),
}

CONTROLS = (
    *(Control(marker) for marker in dict.fromkeys(marker for markers in _TOKENS.values() for marker in markers)),
    Control("<answer>", after_reasoning=True, closer="</answer>"),
    Control("<response>", after_reasoning=True, closer="</response>"),
)

# Tokens only where the reply begins: a byte order mark, and the header that the prompt should have ended with.
FIRST_CONTROLS = ("\ufeff", "<|im_start|>assistant\r\n", "<|im_start|>assistant\n", "<|im_start|>assistant")
