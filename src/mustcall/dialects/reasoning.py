"""The reasoning sections, the control tokens models leak, the results they repeat and HTML's quotations, as data.

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
    "LATE_ENDS",
    "PARAGRAPH_ENDS",
    "QUOTATIONS",
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

    An opener that is seen where it does not count is prose, and so is the closer that goes with it.
    """

    opener: str
    closers: tuple[str, ...]
    anchor: Anchor = Anchor.ANYWHERE
    opens: Anchor = Anchor.ANYWHERE


class Control(msgspec.Struct, frozen=True):
    """A token that never was text. `after_reasoning` ones count only right behind a reasoning section."""

    marker: str
    after_reasoning: bool = False
    closer: str = ""


THINK = Section("<think>", ("</think>",), opens=Anchor.LINE)

SECTIONS = (
    THINK,
    Section("<thinking>", ("</thinking>",), opens=Anchor.LINE),
    Section("<seed:think>", ("</seed:think>",), opens=Anchor.LINE),
    Section("<mm:think>", ("</mm:think>",), opens=Anchor.LINE),
    Section("◁think▷", ("◁/think▷",)),
    Section("[THINK]", ("[/THINK]",)),
    Section("<|START_THINKING|>", ("<|END_THINKING|>",)),
    Section("<|channel>thought\n", ("<channel|>",)),
    Section("<|inner_prefix|>", ("<|inner_suffix|>",)),
    Section("<|open|>think<|sep|>", ("<|close|>think<|sep|>",)),
    Section("<|content_thinking|>", ("<|end_message|>",)),
    Section("Here is my thought process:", ("Here is my response:",), Anchor.START),
    Section("Here are my reasoning steps:", ("[BEGIN FINAL RESPONSE]",), Anchor.START),
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
}

LATE_ENDS = ("</think>", "</seed:think>", "</mm:think>", "◁/think▷", "[/THINK]")

_LEAKED_TOKENS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eom|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|END_OF_TURN_TOKEN|>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    "<|START_TEXT|>",
    "<|END_TEXT|>",
    "<|open|>response<|sep|>",
    "<|close|>response<|sep|>",
    "<|message_model|>",
    "<|content_text|>",
    "<|end_message|>",
    "[BEGIN FINAL RESPONSE]",
    "[END FINAL RESPONSE]",
)

CONTROLS = (
    *(Control(marker) for marker in _LEAKED_TOKENS),
    Control("<answer>", after_reasoning=True, closer="</answer>"),
    Control("<response>", after_reasoning=True, closer="</response>"),
)

# Tokens only where the reply begins: a byte order mark, and the header that the prompt should have ended with.
FIRST_CONTROLS = ("\ufeff", "<|im_start|>assistant\r\n", "<|im_start|>assistant\n", "<|im_start|>assistant")
