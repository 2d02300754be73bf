"""What holds for the tests of the rules: whoever made several upstream calls compares the body of each (rule 118)."""

from support.compared import watch_upstreams

watch_upstreams()
