"""Items in the provider's own form: which are calls for the client, and which are what the client sends back."""

import json

import pytest

from mustcall.core.parts import ProviderItem
from mustcall.wire.codec import Provenance
from mustcall.wire.responses import ResponsesCodec
from mustcall.wire.responses.items import decode_output_item


@pytest.mark.parametrize("kind", ["apply_patch_call", "computer_call", "local_shell_call", "shell_call"])
def test_results_of_client_calls(kind: str) -> None:
    """Rule 11: a result that a caller sends back names the call it is of; in a reply it is the provider's own."""
    item = {"type": f"{kind}_output", "call_id": "call_1", "output": "x"}
    nameless = {"type": f"{kind}_output", "id": "it_1", "call_id": 7, "output": "x"}
    asked = {"model": "m", "input": [{"type": kind, "call_id": "call_1"}, item, nameless]}
    request = ResponsesCodec().decode_request(json.dumps(asked).encode())
    parts = [message.parts[0] for message in request.messages]
    assert [part.result_of for part in parts if isinstance(part, ProviderItem)] == [None, "call_1", ""]
    (ran,) = decode_output_item(item, Provenance(token="t"), 0)
    assert isinstance(ran, ProviderItem)
    assert (ran.result_of, ran.value) == (None, item)
