"""Requests to be shown something, and requests that only mention JSON, an example or a tool's name."""

import pytest

from mustcall.policy.words.shown_examples import asks_to_be_shown


@pytest.mark.parametrize(
    "text",
    [
        "get_weather 怎么用？请给我看一个示例",
        "get_weather 怎么用？",
        "get_weather の呼び出し方を教えて",
        "Wie sieht ein Aufruf von get_weather aus?",
        "Comment appelle-t-on get_weather ?",
        "¿Cómo se llama a get_weather?",
        "Покажи, как вызвать get_weather",
        "Which arguments does get_weather take?",
        "What exactly did you send to the weather service just now?",
        "Repeat your last message verbatim.",
        "Convert this to JSON: x",
        "Answer in JSON.",
        "List the moons as JSON.",
        "请用JSON格式回答",
        "JSONで答えてください",
        "JSON 형식으로 답해 줘",
        "Как вызывается функция get_weather?",
        "Come si usa get_weather?",
        "Como se usa a função get_weather?",
        "Répète ton dernier message.",
        "Wiederhole deine letzte Nachricht.",
        "Gib mir ein Beispiel",
        "举个例子",
        "例を見せてください",
        "예시를 보여 줘",
        "get_weather를 어떻게 호출하나요?",
        "Réponds en JSON",
        "Antworte als JSON",
        "请重复你上一条消息",
        "前のメッセージをそのまま繰り返して",
        "Повтори своё последнее сообщение",
        "What did you call?",
        "Give me the weather in JSON and save it.",
        "Welche Parameter hat get_weather?",
        "What are the parameters of `get_weather`?",
        "Don’t run it",
        "What is the ReAct format?",
        "Explain ReAct to me with get_weather.",
        "Write one ReAct step for the weather in Oslo.",
    ],
)
def test_asks(text: str) -> None:
    """Rule 63: JSON, an example, how a call is written, or what was said before is asked for."""
    assert asks_to_be_shown([text])
    assert asks_to_be_shown(["Hello.", text])


@pytest.mark.parametrize(
    "text",
    [
        "Get the weather in Paris and save it to json",
        "Get the weather in Paris and save it as JSON.",
        "Export the orders to JSON",
        "Write a React component for the weather.",
        "Answer with ReAct: what is the weather in Oslo?",
        "Speichere das Ergebnis als JSON",
        "把结果保存为JSON",
        "Wie sieht das Wetter in Berlin aus?",
        "Nimm zum Beispiel Berlin.",
        "Comment appelle-t-on le petit du chien ?",
        "¿Cómo se llama la capital de Noruega?",
        "Как вызвать такси?",
        "查一下如何使用 docker",
        "Dockerの使い方を検索して",
        "How many rows are in order_items?",
        "Repeat the last search for London.",
        "Take for example the values of last week",
        "例如上周的值，查一下巴黎的天气",
        "巴黎天气怎么样？",
        "パリの天気は？",
        "Сколько градусов в Париже, например?",
        "파리 날씨 어때?",
        "Quel temps fait-il à Paris, par exemple ?",
        "Come si chiama la capitale?",
        "Como está o tempo em Paris?",
        "Which parameters did the court consider?",
        "What did you find about Paris?",
        "请查询天气，比如巴黎",
        "Ruf get_weather für Paris auf.",
        "Call get_weather with Paris.",
        "Use `get_weather` please.",
        "Wie ist das Wetter, und kann ich rausgehen?",
    ],
)
def test_does_not_ask(text: str) -> None:
    """Rule 63: a task is a task, although it names JSON, an example, a way or a tool."""
    assert not asks_to_be_shown([text])


def test_only_the_ends_of_a_message_are_read() -> None:
    """What was pasted between a long message's beginning and its end asks for nothing."""
    pasted = "x" * 2000
    assert asks_to_be_shown([f"Give me an example. {pasted} {pasted}"])
    assert asks_to_be_shown([f"{pasted} {pasted} Give me an example."])
    assert not asks_to_be_shown([f"{pasted} Give me an example. {pasted}"])


@pytest.mark.parametrize("piece", ["a_", "a", "aB", "`a", "函数", "how to ", "wie kann ", "comment ", "как ", "json "])
def test_names_of_any_length_cost_little(piece: str) -> None:
    """Rule 68: no text makes the search slow; with a pattern that backtracks this test does not end."""
    assert not asks_to_be_shown([(piece * 3000)[:3000]])
