"""Reasoning sections: where one ends, and what a section's end means that had no beginning.

What stands in a section is read by a scan of its own, which takes no markup out of it.
"""

from mustcall.dialects.events import LateReasoningEnd, ScanEvent, ScannedReasoning, ScannedText
from mustcall.dialects.reasoning import Section
from mustcall.dialects.scanning.effort import MARK, SECTION
from mustcall.dialects.scanning.grammar import marks_of
from mustcall.dialects.scanning.passing import PassingScan
from mustcall.dialects.scanning.state import Sections

__all__ = ["SectionScan"]


class SectionScan(PassingScan):
    """The modes that read reasoning."""

    def _enter(self, section: Section) -> None:
        self._section = section
        self._section_seen = True
        self._effort.spend(SECTION)
        self._report_seen()
        self._inner = self._inner_scan()
        self._mode = SectionScan._in_section

    def _in_section(self) -> bool:
        """Pass reasoning on; its closer ends it whatever the text inside looks like."""
        reader, section, inner = self._reader, self._section, self._inner
        assert section is not None
        assert inner is not None
        at, marker = marks_of(*section.closers, *section.before).find(reader.buffer, reader.position, reader.closed)
        if at > reader.position:
            self._pass_on(inner.feed(self._skip(at)))
        if marker:
            self._pass_on(inner.close())
            self._section = self._inner = None
            self._after_reasoning(at if marker in section.before else at + len(marker))
            return True
        if reader.closed:
            self._pass_on(inner.close())
        return False

    def _pass_on(self, events: list[ScanEvent]) -> None:
        if self._sections is Sections.SHOWN:
            self._events += events
        else:
            self._events.extend(
                ScannedReasoning(event.text) if isinstance(event, ScannedText) else event for event in events
            )

    def _begin_section(self, section: Section, end: int) -> None:
        """Read a section's marker, and enter it."""
        self._flush_gap()
        self._show_marker(self._skip(end))
        self._enter(section)

    def _after_reasoning(self, end: int) -> None:
        marker = self._skip(end)
        self._narrow()
        self._lines.begin()
        self._to_prose()
        self._open_gap(is_text=self._sections is Sections.SHOWN)
        self._show_marker(marker)

    def _show_marker(self, marker: str) -> None:
        """Release a section's marker where sections are text; tokens are not."""
        if self._sections is Sections.SHOWN and marker and not self._grammar.is_control(marker):
            self._events.append(ScannedText(marker))

    def _meet_late_end(self, marker: str) -> bool | None:
        """Read the end of a section that had no start; None if it is prose, False if more text is needed to know."""
        end = self._reader.position + len(marker)
        late = self._ends_late(marker, end)
        if not late:
            return late
        if not self._section_seen:
            self._report_seen()
            self._events.append(LateReasoningEnd())
        self._section_seen = True
        self._effort.spend(MARK)
        self._after_reasoning(end)
        return True

    def _ends_late(self, marker: str, end: int) -> bool | None:
        """Tell whether a section's end without a start is one, and not prose about tags; False if more text must tell.

        Behind a complete call it takes that back, so that it must end its line there.
        """
        if self._lines.blank:
            self._mentioned.discard(marker)
            return True
        if not self._lines.tight or marker in self._mentioned:
            return None
        if not self._called:
            return True
        reader = self._reader
        if end == len(reader.buffer) and not reader.closed:
            return False
        return True if reader.buffer[end : end + 1] in ("", "\r", "\n") else None
