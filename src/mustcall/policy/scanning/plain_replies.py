"""Whether there is nothing to find in a whole reply: most are plain, and need no scanner."""

from mustcall.core.parts import Reasoning, Text
from mustcall.core.reply import Reply
from mustcall.policy.scanning.reasoning_calls import channels_of
from mustcall.policy.scanning.scan_targets import ScanTargets

__all__ = ["is_plain"]


def is_plain(reply: Reply, lookout: ScanTargets | None) -> bool:
    """Tell quickly whether there is certainly nothing to find in a whole reply."""
    if lookout is None:
        return True
    texts = [part.text for part in reply.parts if isinstance(part, Text)]
    if not all(map(lookout.is_plain, texts)):
        return False
    if not all(map(str.isspace, texts)) or not all(isinstance(part, Text | Reasoning) for part in reply.parts):
        return True
    return all(lookout.is_plain(text) for part in reply.parts for _, text in channels_of(part))
