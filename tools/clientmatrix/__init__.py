"""Real clients against a scripted model that misbehaves, with and without the gateway: the parts of `tools/clients.py`.

`cases` says what the model does wrong, `adapters` how each client is installed and started, `cells` runs one client on
one case, `scoring` says what a cell came to, `pages` draws the table.
"""
