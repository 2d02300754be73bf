"""Writes docs/first-minute.md: the ten most obvious questions, asked of `mustcall run` and `mustcall chat`.

Everything on the page is what the two commands printed on the model named there, in a folder made for it. An answer is
right if it holds what it must hold, or says that it does not know; the exit status is 1 if one is neither. `--gguf`
asks another model file, `--stdout` prints the page instead of writing it, `--only N` asks one question.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "first-minute.md"
_MUSTCALL = (sys.executable, "-m", "mustcall")
_LONGEST_SECONDS = 900.0
#: The line that `/model` prints: what stands between two answers of a conversation.
_BETWEEN = re.compile(r"^.+ at embedded:.* \(chat\)\n", re.MULTILINE)
_UNSURE = re.compile(r"(?i)\b(?:do(?:es)? not|don't|cannot|can't|not able to) (?:know|tell|say|find)|\bnot sure\b")

_FILES = {
    "notes.txt": "Buy milk.\nCall Anna at 5 pm about the 3 invoices.\n",
    "handbook/holidays.md": "# Holidays\n\nEmployees have 27 days of holiday a year. Ask your manager a week before.\n",
    "handbook/deploying.md": "# Deploying\n\nDeployments run every Tuesday at 14:00. `make rollback` undoes one.\n",
}

_HEAD = """\
# The first minute

<!-- Written by `python tools/first_minute.py`; do not edit. -->

The ten questions that people ask first, as `mustcall run` and `mustcall chat` answered them on the default model,
{model}, in the process, on {date}. {right} of {count} answers are right or say that the model does not know.{wrong}
[chat.md](chat.md) explains what is looked up, and what is held against what.

"""


@dataclass(frozen=True)
class Question:
    """What is asked, and what tells a right answer."""

    text: str
    right: Callable[[str], bool]

    def accepts(self, answer: str) -> bool:
        """Tell whether an answer is right, or says that the model does not know."""
        return bool(answer.strip()) and (self.right(answer) or _UNSURE.search(answer) is not None)


def _holds(*words: str) -> Callable[[str], bool]:
    return lambda answer: all(word in answer for word in words)


def _tells_time(answer: str) -> bool:
    """Tell whether an answer has the time of the last minutes, by either clock."""
    now = datetime.now().astimezone()
    minutes = [now.hour * 60 + now.minute - back for back in range(30)]
    times = {f"{minute // 60 % 24}:{minute % 60:02d}" for minute in minutes}
    times |= {f"{minute // 60 % 12 or 12}:{minute % 60:02d}" for minute in minutes}
    return any(found.lstrip("0") in times for found in re.findall(r"\d{1,2}:\d{2}", answer))


QUESTIONS = (
    Question("List the files in this folder", _holds("notes.txt", "handbook")),
    Question("What does notes.txt say?", _holds("milk", "Anna")),
    Question("What time is it?", _tells_time),
    Question("What day is it today?", lambda answer: f"{datetime.now().astimezone():%A}" in answer),
    Question("What is 17 * 23?", _holds("391")),
    Question("What is 17.5% of 3421?", lambda answer: re.search(r"598\.67\b|598\.68|598\.675", answer) is not None),
    Question("What is the square root of 144?", _holds("12")),
    Question("Search the docs: how many days of holiday do employees have?", _holds("27")),
    Question("What is the capital of France?", _holds("Paris")),
    Question("Hello!", lambda answer: re.match(r"(?i)\W{0,3}(?:hello|hi|how can i)\b", answer) is not None),
)


@dataclass(frozen=True)
class Asked:
    """A question and what came of it: everything that was shown, and the answer alone."""

    question: Question
    shown: str
    answer: str

    @property
    def good(self) -> bool:
        """Whether the answer is one to show."""
        return self.question.accepts(self.answer)


def main() -> int:
    """Ask, write the page, say how many answers were right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", type=Path, help="a model file to ask instead of the default model")
    parser.add_argument("--stdout", action="store_true", help="print the page instead of writing it")
    parser.add_argument("--only", type=int, metavar="N", help="ask the N-th question only")
    given = parser.parse_args()
    options = ["--docs", "handbook", *(["--gguf", str(given.gguf.resolve())] if given.gguf else [])]
    questions = QUESTIONS if given.only is None else QUESTIONS[given.only - 1 : given.only]
    with tempfile.TemporaryDirectory() as place:
        desk = Path(place, "desk").resolve()
        for name, text in _FILES.items():
            file = desk / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        model = _model(desk, options)
        ran = [_run(desk, options, question) for question in questions]
        chatted = list(_chat(desk, options, questions))
    page = _page(model, ran, chatted)
    if given.stdout:
        print(page)
    elif given.only is None:
        PAGE.write_text(page, encoding="utf-8")
    wrong = [asked.question.text for asked in (*ran, *chatted) if not asked.good]
    print(f"{len(ran) + len(chatted) - len(wrong)} of {len(ran) + len(chatted)} answers are right", file=sys.stderr)
    for text in wrong:
        print(f"wrong: {text}", file=sys.stderr)
    return 1 if wrong else 0


def _start(desk: Path, *arguments: str, said: str | None = None) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name not in ("MUSTCALL_CONFIG", "COLUMNS")}
    return subprocess.run(  # noqa: S603  our own command
        [*_MUSTCALL, *arguments],
        input=said,
        capture_output=True,
        text=True,
        timeout=_LONGEST_SECONDS,
        check=False,
        cwd=desk,
        env=environment | {"MUSTCALL_STATE": str(desk.parent / "state"), "COLUMNS": "120"},
    )


def _model(desk: Path, options: list[str]) -> str:
    """Return the name of the model that answers."""
    said = _start(desk, "chat", *options, said="/model\n").stdout.strip()
    return said.partition(" at ")[0] or "no model"


def _run(desk: Path, options: list[str], question: Question) -> Asked:
    done = _start(desk, "run", question.text, *options)
    shown = f"$ mustcall run {question.text!r} --docs handbook\n{done.stderr}{done.stdout}"
    asked = Asked(question, _neutral(shown, desk), done.stdout)
    print(f"{'right' if asked.good else 'wrong'}: {question.text}", file=sys.stderr, flush=True)
    return asked


def _chat(desk: Path, options: list[str], questions: tuple[Question, ...]) -> Iterator[Asked]:
    lines = "".join(f"{question.text}\n/model\n" for question in questions)
    done = _start(desk, "chat", *options, said=lines)
    pieces = _BETWEEN.split(done.stdout)
    for question, piece in zip(questions, [*pieces, *[""] * len(questions)], strict=False):
        told = [line for line in piece.splitlines() if not re.match(r"(?:→| {2}\S)", line)]
        yield Asked(question, _neutral(f"you> {question.text}\n{piece}", desk), "\n".join(told))


def _neutral(text: str, desk: Path) -> str:
    """Return what was shown without where on this machine it was."""
    return text.replace(str(desk), "~/desk").rstrip()


def _page(model: str, ran: list[Asked], chatted: list[Asked]) -> str:
    every = [*ran, *chatted]
    right = sum(asked.good for asked in every)
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    wrong = "".join(f"\nNot so: `{asked.question.text}`." for asked in every if not asked.good)
    head = _HEAD.format(model=f"`{model}`", date=date, right=right, count=len(every), wrong=wrong)
    runs = "\n\n".join(f"```text\n{asked.shown}\n```" for asked in ran)
    chats = "\n".join(asked.shown for asked in chatted)
    return f"{head}## mustcall run\n\n{runs}\n\n## mustcall chat\n\n```text\n{chats}\n```\n"


if __name__ == "__main__":
    sys.exit(main())
