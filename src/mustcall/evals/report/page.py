"""Writes a run as one HTML page that needs nothing else: no script, no fetch; light and dark, wide and narrow.

Every number comes from `figures`; the look is the style sheet beside this module.
"""

from collections.abc import Iterator
from html import escape

from mustcall.evals.asking.rows import Arm, Form
from mustcall.evals.report.figures import Figures, Measure, add_up
from mustcall.evals.report.html import bar, document, table
from mustcall.evals.report.results import EvalResults, Pair, Trial
from mustcall.evals.report.wording import (
    ARMS,
    cost_rows,
    headline,
    of,
    partial_note,
    seconds,
    unread_note,
    when,
)
from mustcall.evals.scoring import Score

__all__ = ["DEFINITIONS", "write_page"]

#: What the three measures mean; docs/demo.md says the same at length.
DEFINITIONS = {
    Measure.VALID: "at least one tool call came back as a call, and every one names an offered tool and has arguments "
    "that are valid under its schema",
    Measure.RIGHT_TOOL: "it is valid, and calls the tool that the prompt is about",
    Measure.RIGHT_ARGUMENTS: "it calls the right tool, with the arguments the prompt gives",
}

#: How the bare arm got its tools.
_FORMS = {
    Form.NATIVE: "what the server itself returned as tool calls counts, and text does not.",
    Form.WORDS: "the model's chat template has no place for tools, so they were listed in a system message that asks "
    "for a call as JSON, and such JSON counts as a call.",
}

_GRADES = ("no valid call", "valid call, wrong tool", "right tool, wrong arguments", "right arguments")


def write_page(run: EvalResults) -> str:
    """Return the report."""
    figures = add_up(run)
    return document(
        headline(figures),
        [
            *_opening(run, figures),
            *_chart(figures),
            *_cells(run),
            *_cost(figures),
            *_by_demand(figures),
            *_method(run, figures),
            *_prompts(run),
        ],
    )


def _opening(run: EvalResults, figures: Figures) -> Iterator[str]:
    told = run.circumstances
    yield f"<h1>{escape(headline(figures))}</h1>"
    yield (
        f'<p class="faint">{escape(told.model)} at {escape(told.address)}, {len(run.pairs)} prompts asked both ways, '
        f"{when(told.started)}, mustcall {escape(told.version)}</p>"
    )
    if run.partial:
        yield f'<p class="warn">{escape(partial_note(run))}</p>'
    if figures.unread:
        yield f"<p>{escape(unread_note(figures))}</p>"


def _chart(figures: Figures) -> Iterator[str]:
    yield '<h2>Share of replies</h2><p class="faint">The line on each bar is the 95 % interval (Wilson).</p>'
    for measure in Measure:
        yield f"<h3>{measure}</h3>"
        for arm in Arm:
            yield bar(ARMS[arm], arm, measure, figures.shares[arm][measure])


def _grade(score: Score) -> int:
    return score.valid + score.right_tool + score.right_arguments


def _cells(run: EvalResults) -> Iterator[str]:
    yield "<h2>Prompt by prompt</h2>"
    for arm in Arm:
        yield f'<p>{ARMS[arm]}</p><ul class="cells" aria-hidden="true">'
        for pair in run.pairs:
            grade = _grade(pair.arm(arm).score)
            yield f'<li class="s{grade}" title="{escape(pair.says)}: {_GRADES[grade]}"></li>'
        yield "</ul>"
    swatches = "".join(
        f'<span style="--swatch: var(--s{grade})">{_GRADES[grade]}</span>' for grade in reversed(range(len(_GRADES)))
    )
    yield f'<p class="key">{swatches}</p>'


def _cost(figures: Figures) -> Iterator[str]:
    yield "<h2>What it cost</h2>"
    yield from table(("", "bare", "mustcall", "change"), cost_rows(figures))


def _by_demand(figures: Figures) -> Iterator[str]:
    heads = "".join(f'<th class="n">{measure}</th>' for measure in Measure)
    yield f'<h2>By what the caller demanded</h2><div class="scroll"><table><tr><th>tool_choice</th>{heads}</tr>'
    for demand, arms in figures.by_demand.items():
        yield f'<tr><td class="group" colspan="{len(Measure) + 1}">{demand}</td></tr>'
        for arm in Arm:
            shares = "".join(f'<td class="n">{of(arms[arm][measure])}</td>' for measure in Measure)
            yield f'<tr><td class="member">{ARMS[arm]}</td>{shares}</tr>'
    yield "</table></div>"


def _method(run: EvalResults, figures: Figures) -> Iterator[str]:
    told = run.circumstances
    yield "<h2>How it was measured</h2>"
    yield (
        "<p>Both arms were sent the same requests: one user message, one to four tools, the "
        "<code>tool_choice</code>. <b>Bare</b> is the upstream's own reply, one call for each prompt; "
        f"{_FORMS[told.form]} <b>mustcall</b> is the same request through mustcall's contract; its extra calls are "
        "counted above. The arms took turns in going first.</p><dl>"
    )
    for measure, words in DEFINITIONS.items():
        yield f"<dt>{measure}</dt><dd>{words}</dd>"
    yield "</dl>"
    for measure in Measure:
        only_bare, only_must = figures.only[measure]
        yield f"<p>{measure}: {only_must} prompts only through mustcall, {only_bare} only bare.</p>"
    temperature = "the server's own" if told.sampling.temperature is None else f"{told.sampling.temperature:g}"
    seed = "the file's" if told.seed is None else f"seed {told.seed}"
    yield (
        f'<p class="faint">wire {told.wire}; temperature {temperature}; at most {told.sampling.max_tokens} tokens a '
        f"reply; order of prompts: {seed}.</p>"
    )


def _prompts(run: EvalResults) -> Iterator[str]:
    yield '<h2>Every reply</h2><p class="faint">The two marks are the bare reply and mustcall\'s.</p>'
    for pair in run.pairs:
        marks = "".join(f'<span class="mark s{_grade(pair.arm(arm).score)}"></span>' for arm in Arm)
        yield (
            f'<details><summary>{marks}<span class="says">{escape(pair.says)}</span>'
            f'<span class="faint">{pair.demand}</span></summary><div class="said">'
        )
        yield from _said(pair)
        yield "</div></details>"


def _said(pair: Pair) -> Iterator[str]:
    yield f"<p>Wanted: <code>{escape(pair.wanted)}</code></p>"
    for arm in Arm:
        trial = pair.arm(arm)
        grade = _GRADES[_grade(trial.score)]
        yield f'<p><b>{ARMS[arm]}</b>: {grade} <span class="faint">{_took(trial)}</span></p>'
        for call in trial.calls:
            yield f"<p><code>{escape(call.name)}({escape(call.arguments)})</code></p>"
        if trial.fault is not None:
            yield f"<p><code>{escape(trial.fault.code)}</code> {escape(trial.fault.message)}</p>"
        elif trial.text:
            yield f"<p>“{escape(trial.text)}”</p>"
        elif not trial.calls:
            yield "<p>(nothing)</p>"


def _took(trial: Trial) -> str:
    calls = f"{trial.sends} upstream call{'' if trial.sends == 1 else 's'}"
    verdicts = f", {', '.join(trial.verdicts)}" if trial.verdicts else ""
    return f"{calls}, {seconds(trial.seconds)}{verdicts}"
