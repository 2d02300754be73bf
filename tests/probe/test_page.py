"""The page, the badge and the words: well formed for any result, and nothing an upstream said is markup."""

import re
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.origin import Wire
from mustcall.probe.catalogue import CELLS
from mustcall.probe.page import write_badge, write_page
from mustcall.probe.results import CellResult, ProbeResult
from mustcall.probe.values import Level, Outcome, Owner
from mustcall.probe.verdicts import count, settle_verdict
from support.htmlpage import Page

OUTCOMES = st.lists(st.sampled_from(Outcome), max_size=8)


@st.composite
def results(draw: st.DrawFn) -> ProbeResult:
    """Any result, with whatever notes."""
    chosen = draw(st.lists(st.sampled_from(CELLS), max_size=12, unique_by=lambda cell: cell.id))
    cells: list[CellResult] = []
    for cell in chosen:
        outcomes = draw(OUTCOMES)
        share = count(outcomes)
        cells.append(
            CellResult(
                id=cell.id,
                guarantee=cell.guarantee,
                group=cell.group,
                required=cell.required,
                verdict=settle_verdict(outcomes),
                owner=draw(st.none() | st.sampled_from(Owner)),
                note=draw(st.text(max_size=20)) + draw(st.sampled_from(["", "<script>alert(1)</script>", "`a` & <b>"])),
                outcomes=tuple(outcomes),
                held=share.hits,
                measured=share.of,
            )
        )
    return ProbeResult(
        upstream="up",
        base_url="http://127.0.0.1:9/v1?<x>",
        wire=draw(st.sampled_from(Wire)),
        model=draw(st.sampled_from(["m", "<i>m</i>"])),
        level=Level.QUICK,
        started="2026-11-17T09:00:00+00:00",
        partial=draw(st.sampled_from(["", "stopped"])),
        cells=tuple(cells),
    )


@given(results())
def test_the_page_is_well_formed_whatever_an_upstream_said(result: ProbeResult) -> None:
    """Tags are closed, notes are text, nothing is fetched."""
    text = write_page(result)
    page = Page(text)
    assert not re.search(r"<script|<link|<img|<iframe|<i>|<b>|@import|url\(", text)
    assert not {name for _, name, _ in page.attributes} & {"src", "href", "srcset", "data", "action", "onclick"}
    assert all(f"<code>{cell.id}</code>" in text for cell in result.cells)


@given(results())
def test_the_badge_is_an_svg(result: ProbeResult) -> None:
    """Well formed, with a label for those who do not see it."""
    root = ET.fromstring(write_badge(result))  # noqa: S314  our own text
    assert root.attrib["aria-label"].startswith("mustcall probe: ")
