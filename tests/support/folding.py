"""The cases of a test, run as one test: what pytest does around a test takes longer than most of them.

Every case runs and the failed ones are named by their ids. Only workers of pytest-xdist fold, which run the whole
suite: whoever names a test or a case, or runs a file alone, gets the cases as they are written. A case with fixtures or
marks of its own, a coroutine and a property stay tests by themselves.
"""

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from typing import Any

import pytest

__all__ = ["Folded", "folded", "run_cases"]

#: What is done before and after each case.
Around = Callable[[pytest.Item], AbstractContextManager[None]]
#: So many cases are one test at most: the last tests of a run should be short.
_MOST = 32


class Folded(pytest.Item):
    """Some cases of one function."""

    def __init__(self, *, cases: Sequence[pytest.Function], around: Around, **rest: Any) -> None:
        super().__init__(**rest)  # pyright: ignore[reportUnknownMemberType]
        self.cases = cases
        self._around = around

    def runtest(self) -> None:
        """Run every case; fail with what each failed case raised."""
        run_cases(self.cases, self._around)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Tell where the function stands."""
        return self.cases[0].reportinfo()


def run_cases(cases: Sequence[pytest.Function], around: Around) -> None:
    """Run every case. Raise what the only failed one raised, or a group of what several did, each with its id."""
    raised: list[BaseException] = []
    skipped: list[str] = []
    for case in cases:
        try:
            with around(case):
                case.obj(**_values(case))
        except pytest.skip.Exception as skip:
            skipped.append(f"{case.name}: {skip}")
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  whatever it is, the other cases run as well
            error.add_note(case.nodeid)
            raised.append(error)
    if len(raised) == 1:
        raise raised[0]
    if raised:
        raise BaseExceptionGroup(f"{len(raised)} of {len(cases)} cases failed", raised)
    if skipped:
        pytest.skip("; ".join(skipped))


def folded(items: Sequence[pytest.Item], around: Around) -> list[pytest.Item]:
    """Return the tests, neighbouring cases of the same plain function as one test."""
    found: list[pytest.Item] = []
    for function, group in groupby(items, _function):
        same = list(group)
        if function is None or len(same) < 2:
            found += same
        else:
            found += [_fold(same[start : start + _MOST], around) for start in range(0, len(same), _MOST)]
    return found


def _fold(items: Sequence[pytest.Item], around: Around) -> pytest.Item:
    cases = [item for item in items if isinstance(item, pytest.Function)]
    parent: Any = cases[0].parent
    name = f"{cases[0].originalname}[{len(cases)} from {_spec(cases[0]).id}]"
    return Folded.from_parent(parent, name=name, cases=cases, around=around)  # pyright: ignore[reportUnknownMemberType]


def _spec(item: pytest.Item) -> Any:
    return getattr(item, "callspec", None)


def _function(item: pytest.Item) -> tuple[str, str] | None:
    """Return what the cases of a function have in common, None for a test that stays one by itself."""
    if not isinstance(item, pytest.Function) or _spec(item) is None or item.cls is not None:
        return None
    if inspect.iscoroutinefunction(item.obj) or hasattr(item.obj, "hypothesis"):
        return None
    if any(mark.name != "parametrize" for mark in item.iter_markers()):
        return None
    values = _spec(item).params
    if set(item.fixturenames) - {_LOOPS} != set(values) or not all(_is_given(item, name) for name in values):
        return None
    return item.path.as_posix(), item.originalname


#: The fixture that pytest-asyncio has every test use.
_LOOPS = "event_loop_policy"


def _is_given(item: pytest.Function, name: str) -> bool:
    """Whether a value is handed to the function as it is, not to a fixture of this name."""
    definitions: Any = item._fixtureinfo.name2fixturedefs[name]  # pyright: ignore[reportPrivateUsage]
    return definitions[-1].func.__name__ == "get_direct_param_fixture_func"


def _values(case: pytest.Function) -> dict[str, Any]:
    return dict(_spec(case).params)
