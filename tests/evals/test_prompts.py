"""The prompts are what they say: forty, mixed, each with a right call that fits its own tool."""

import pytest

from mustcall.core.errors import ConfigError
from mustcall.evals.prompts import EvalPrompt, choose_prompts, describe_wanted, load_prompts
from mustcall.evals.questions import AskedCall
from mustcall.evals.scoring import Score, score
from mustcall.policy.schema.validation import schema_fault
from support.evaluating import PROMPTS, right_call

each = pytest.mark.parametrize("prompt", load_prompts(), ids=lambda prompt: prompt.id)


def test_there_are_forty_of_them() -> None:
    """Forty prompts under names of their own, none asked twice, half of them `required`, the rest named and `auto`."""
    prompts = load_prompts()
    assert len(prompts) == len(PROMPTS) == len({prompt.says for prompt in prompts}) == 40
    demands = [prompt.demand for prompt in prompts]
    assert [demands.count(demand) for demand in AskedCall] == [20, 10, 10]


@each
def test_the_right_call_is_right(prompt: EvalPrompt) -> None:
    """One to four tools are on offer, their schemas compile, and the wanted call scores in full."""
    assert 1 <= len(prompt.tools) <= 4
    assert all(schema_fault(tool.parameters or {}) is None for tool in prompt.tools)
    assert score(prompt, [right_call(prompt)]) == Score(valid=True, right_tool=True, right_arguments=True)


@each
def test_a_stranger_to_the_prompt_is_not_right(prompt: EvalPrompt) -> None:
    """No prompt is so lax that another prompt's right call would do."""
    others = (other for other in load_prompts() if other.id != prompt.id)
    assert not any(score(prompt, [right_call(other)]).right_arguments for other in others)


def test_the_right_tool_stands_anywhere() -> None:
    """A model that always calls the first tool gains nothing by it: the right one is first as often as due."""
    several = [prompt for prompt in load_prompts() if len(prompt.tools) > 1]
    first = sum(prompt.tools[0].name == prompt.wants for prompt in several)
    due = sum(1 / len(prompt.tools) for prompt in several)
    assert abs(first - due) < 2


def test_a_short_run_is_mixed() -> None:
    """The first four prompts have every demand among them."""
    assert {prompt.demand for prompt in choose_prompts(4)} == set(AskedCall)


def test_a_seed_decides_the_order() -> None:
    """The same seed gives the same order, another one another; nothing is lost by it."""
    assert choose_prompts(seed=1) == choose_prompts(seed=1) != choose_prompts(seed=2)
    assert {prompt.id for prompt in choose_prompts(seed=1)} == set(PROMPTS)
    assert choose_prompts(5, 1) == choose_prompts(seed=1)[:5]
    assert choose_prompts() == load_prompts()


@pytest.mark.parametrize("count", [0, -1, 41])
def test_a_number_there_is_not(count: int) -> None:
    """Asking for none or for more than there are names the number there is."""
    with pytest.raises(ConfigError, match="1 to 40"):
        choose_prompts(count)


def test_the_right_call_in_words() -> None:
    """The report says what was wanted, each comparison in its own words."""
    assert describe_wanted(PROMPTS["light-off"]) == 'switch_light(room: "bedroom", on: false)'
    assert describe_wanted(PROMPTS["list-tmp"]) == 'list_directory(path: "/tmp" or "/tmp/")'
    assert describe_wanted(PROMPTS["tell-anna"]) == 'send_message(to: "Anna", text: text with "late")'
    assert describe_wanted(PROMPTS["shopping"]) == 'add_to_list(items: "milk", "bread", "eggs" in any order)'
