"""The Berkeley Function Calling Leaderboard as a suite: its data as published, its AST rules written anew.

`source` fetches the published package, `entries` reads it, `offers` writes its functions as tools, `values` and
`checking` say which calls are right, `suite` puts them together. Nothing of the package is part of mustcall.
"""
