"""Pure values every layer shares: parts, messages, tools, requests, replies, stream events, errors.

Nothing here knows a wire format, a clock, a socket or a setting.
"""
