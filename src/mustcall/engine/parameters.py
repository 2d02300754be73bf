"""The type parameters of the library: what tools depend on, and what a run's answer is.

Both are `None` where nobody names one. Type checkers read the defaults (PEP 696), which the language has from 3.13 on;
here the parameters are the plain ones of every version.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import TypeVar

    Deps = TypeVar("Deps", default=None)
    Deps_co = TypeVar("Deps_co", default=None, covariant=True)
    Out = TypeVar("Out", default=None)
    Out_co = TypeVar("Out_co", default=None, covariant=True)
    Asked = TypeVar("Asked", default=Any)  # of a JSON schema nothing is known
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")
    Deps_co = TypeVar("Deps_co", covariant=True)
    Out = TypeVar("Out")
    Out_co = TypeVar("Out_co", covariant=True)
    Asked = TypeVar("Asked")

__all__ = ["Asked", "Deps", "Deps_co", "Out", "Out_co"]
