"""Whether the text before a JSON call object is a lead-in to it, or prose that presents an example (rule 63).

A model that calls a tool in JSON may say so in a sentence first. A model that explains, documents or configures
something writes more, or says that it does. Pure; the cost is bounded, since a lead-in is short.
"""

import re

__all__ = ["LONGEST_LEAD_IN", "is_lead_in"]

#: The longest text that counts as one short paragraph, in characters.
LONGEST_LEAD_IN = 400

_PARAGRAPHS = re.compile(r"\n[ \t\r]*\n")
#: Lines of documents: headings, list items, tables, quotations, comments, code.
_DOCUMENT_LINE = re.compile(r"^[ \t]*(?:#|[-*+•][ \t]|\d+[.)][ \t]|\||>|//|/\*|<!--|`{3})", re.MULTILINE)
#: Words that present what follows as something to look at.
_PRESENTS = re.compile(
    r"\b(?:examples?|e\.g|for instance|samples?|snippets?|templates?|placeholders?|syntax|schemas?|formats?|formatted|"
    r"looks? like|like this|would (?:be|look|send|write)|hypothetical(?:ly)?|imagine|suppose|"
    r"equivalent|wrong|invalid|incorrect|"
    r"instead of|definitions?|defined|documentation|specification|(?<![./\w])json|yaml)\b",
    re.IGNORECASE,
)
#: Sentences that tell the reader what to do with what follows: "Write this:", "Paste it here."
_TELLS = re.compile(
    r"(?:^|[.!?;:]\s+)(?:please )?(?:write|type|paste|copy|enter|insert|put|send|save)\s+"
    r"(?:this|these|that|it|the following)\b",
    re.IGNORECASE,
)
#: Words that address the reader or describe a thing, unless the model speaks of what it does itself.
_ADDRESSES = re.compile(
    r"\b(?:you(?:'d|'ll|r)?|users?|developers?|clients?|should|could|might|must|can be|is (?:how|what|the)|are the|"
    r"files?|config(?:uration)?s?|settings|manifest|payloads?|body|responses?|returns?|output|represents?|"
    r"corresponds?|structures?|above|below|previous|earlier)\b",
    re.IGNORECASE,
)
_OWN_ACT = re.compile(
    r"\b(?:i(?:'ll|'m| will| am| need| can| must| should| have to|'d like)|let me|let us|let's|calling|checking|using|"
    r"looking up|searching|fetching|getting|running|one moment|sure|okay|ok|certainly|of course)\b",
    re.IGNORECASE,
)


def is_lead_in(text: str) -> bool:
    """Tell whether a JSON call object behind this text may still be the reply: it is blank, or one short paragraph."""
    said = text.strip()
    if not said:
        return True
    if len(said) > LONGEST_LEAD_IN or _PARAGRAPHS.search(said) or _DOCUMENT_LINE.search(said):
        return False
    if _PRESENTS.search(said) is not None or _TELLS.search(said) is not None:
        return False
    return _OWN_ACT.search(said) is not None or _ADDRESSES.search(said) is None
