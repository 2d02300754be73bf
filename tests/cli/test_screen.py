"""What is shown while an answer is waited for."""

import io

import pytest
from rich.console import Console

from mustcall.cli.asking.screen import Screen
from mustcall.toolkit.reports import ChangeReports

LOADING = "loading the model"


def waited(screen: Screen, console: Console, address: str) -> str:
    """What the terminal shows of one wait."""
    with console.capture() as captured:
        screen.wait(address)
        screen.settle()
    return captured.get()


@pytest.mark.parametrize(("address", "loads"), [("embedded:a", True), ("http://127.0.0.1:9/v1", False), ("", False)])
def test_a_model_inside_the_process_is_said_to_be_loaded_once(address: str, loads: bool) -> None:
    """Loading takes seconds before the first word: it is told at the first question, of each model."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    screen = Screen(console, ChangeReports())
    assert (LOADING in waited(screen, console, address)) is loads
    assert LOADING not in waited(screen, console, address)
    assert LOADING in waited(screen, console, "embedded:another")
