"""What an answer says was done, held against the calls that ran."""

import pytest

from mustcall.policy.reply.unbacked_claims import ActedCall, Backing, unbacked_claims

FILES = (ActedCall(name="write_file"), ActedCall(name="delete_file"), ActedCall(name="create_event"))


def claimed(text: str, *calls: ActedCall, offered: tuple[ActedCall, ...] = FILES) -> list[tuple[str, Backing]]:
    """The acts that a text claims and nothing backs."""
    return [(claim.act, claim.backing) for claim in unbacked_claims(text, calls, offered)]


def did(name: str, backing: Backing = Backing.DONE, **more: bool | str) -> ActedCall:
    """A call."""
    return ActedCall(name=name, backing=backing, **more)  # pyrefly: ignore[bad-argument-type]


@pytest.mark.parametrize(
    ("text", "act"),
    [
        ("I've posted it to #general.", "post"),
        ("I have successfully sent the email to Bob.", "send"),
        ("Done! Sent the mail to Bob.", "send"),
        ("**I've deleted the old file.**", "delete"),
        ("The event has been created.", "create"),
        ("Sure. We then booked the room for Monday.", "book"),
        ("I\u2019ve just paid the invoice.", "pay"),
    ],
)
def test_a_claim_that_nothing_backs_is_found(text: str, act: str) -> None:
    """Says it was done; no call did."""
    assert claimed(text) == [(act, Backing.NOTHING)]


@pytest.mark.parametrize(
    "text",
    [
        "I have not sent it.",
        "I haven't posted anything yet.",
        "Have I sent it?",
        'He wrote: "I sent it to you".',
        "> I sent it to you",
        "`I sent it`",
        "Once you agree, I have sent it within a minute.",
        "I would have posted it.",
        "I failed to send it; I sent nothing.",
        "It was sent by Bob.",
        "I added 2 and 2: the sum is 4.",
        "Paris is sunny; I looked it up.",
        "I will have sent it by Monday.",
        "I drafted what I sent to you for review.",
        "",
    ],
)
def test_what_is_no_plain_statement_is_no_claim(text: str) -> None:
    """Denials, questions, quotations, plans and sums are left alone."""
    assert claimed(text) == []


@pytest.mark.parametrize(
    ("call", "backing"),
    [
        (did("send_email"), None),
        (did("slack", description="Sends a message to a channel."), None),
        (did("shell"), None),
        (did("frobnicate"), None),  # nobody knows what it does
        (did("send_email", Backing.UNKNOWN), Backing.UNKNOWN),
        (did("send_email", Backing.FAILED), Backing.FAILED),
        (did("send_preview", acts=False), Backing.NOTHING),
        (did("get_email"), Backing.NOTHING),
        (did("delete_file"), Backing.NOTHING),
    ],
)
def test_only_a_call_that_could_have_done_it_backs_a_claim(call: ActedCall, backing: Backing | None) -> None:
    """What backs a claim is a call that acts, succeeded, and is not known to be for something else."""
    assert claimed("I sent the email.", call) == ([] if backing is None else [("send", backing)])


def test_the_best_of_several_calls_counts() -> None:
    """A call that failed and was made again backs the claim."""
    assert claimed("I sent the email.", did("send_email", Backing.FAILED), did("send_email")) == []


def test_what_can_be_done_in_words_needs_a_tool_on_offer() -> None:
    """An editor without tools changes the text in its answer; that is no claim."""
    assert claimed("I removed the comma and updated the title.", offered=()) == []
    assert claimed("I've saved the file.", offered=()) == []
    assert claimed("I've saved the file.") == [("save", Backing.NOTHING)]
    assert claimed("I sent the email.", offered=()) == [("send", Backing.NOTHING)]


def test_the_passive_tells_what_was_seen() -> None:
    """After a look at the world, "has been" is news of it."""
    assert claimed("The event has been created.", did("list_events")) == []


def test_a_claim_names_its_sentence_and_its_calls() -> None:
    """The report can be shown to people."""
    (claim,) = unbacked_claims("It rains. I've sent the mail. Bye.", [did("send_mail", Backing.FAILED)])
    assert (claim.sentence, claim.tools) == ("I've sent the mail.", ("send_mail",))
