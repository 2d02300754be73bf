"""How many steps may be taken together: what is spent, what is refused, what is done elsewhere."""

from mustcall.core.origin import JsonObject
from mustcall.core.tools import Tool
from mustcall.engine.off_loop import Aside, here
from mustcall.policy.limits.work_allowance import allow, left, spend
from mustcall.policy.schema.arguments import check_arguments
from mustcall.policy.schema.checker import fits, validator_for
from mustcall.policy.schema.coercion import Mender


def _dear(marker: str) -> JsonObject:
    """A schema that takes many steps at each place; the marker makes it one of its own."""
    branches = [{"type": "string", "minLength": number} for number in range(200)]
    return {"type": "object", "title": marker, "properties": {"a": {"type": "array", "items": {"allOf": branches}}}}


def test_without_an_allowance_nothing_is_counted() -> None:
    """Rule 68: a library's caller is bounded by each check alone."""
    assert all(spend(10**9) for _ in range(10))


def test_steps_are_spent_until_they_are_gone() -> None:
    """Rule 68: what goes beyond an allowance is refused where there is no other place for it."""
    assert allow(10, lambda: [spend(4), spend(6), spend(1)], ()) == [True, True, False]


def test_more_than_the_loop_allows_is_done_elsewhere() -> None:
    """Rule 68: on the loop it is given up, and the allowance ends with the call."""
    assert here(spend, 400_000) is True
    assert here(spend, 400_001) is Aside.ASIDE
    assert spend(400_001)


def test_checks_share_one_allowance() -> None:
    """Rule 68: checks that are affordable one by one are not together."""
    checker = validator_for(_dear("shared"))
    assert checker is not None
    value = {"a": ["x" * 300] * 50}
    each = 10**9 - allow(10**9, lambda: (fits(checker, value), left.get())[1], ())
    both = allow(each, lambda: [fits(checker, value), fits(checker, value)], ())
    assert both == [True, False]


def test_compiling_is_work_for_elsewhere_and_is_never_refused() -> None:
    """Rule 68: a new schema does not hold up the loop; in a thread it is compiled whatever was spent before."""
    tool = Tool(name="f", parameters=_dear("compiled"))
    arguments = '{"a": 1}'
    assert here(check_arguments, tool, arguments) is Aside.ASIDE
    checked = allow(0, check_arguments, (tool, arguments))
    assert not checked.unchecked
    assert checked.problems


def test_looking_for_what_applies_is_counted() -> None:
    """Rule 68: a schema that applies itself twice at each level is mended within the same allowance."""
    below: JsonObject = {"type": "object", "additionalProperties": {"$ref": "#"}}
    schema: JsonObject = {"allOf": [below, {**below, "minProperties": 1}]}

    def steps(depth: int) -> int:
        value: object = 1
        for _ in range(depth):
            value = {"a": value}
        mender = Mender(schema, null_is_absent=False)
        return 10**9 - allow(10**9, lambda: (mender.mend(value, [schema], ()), left.get())[1], ())

    assert steps(40) - steps(20) == steps(60) - steps(40) > 0
