"""The page at `/ui`: what the gateway's turns came to, one turn attempt by attempt, and what is known of the models.

Files of the page are served to everybody, what they show only to those whom `lock` lets in. Nothing is loaded from
anywhere else, and nothing of a turn is ever read as HTML.
"""
