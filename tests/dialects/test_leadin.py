"""Lead-ins to a call, and texts that present one."""

import pytest

from mustcall.dialects.leadin import LONGEST_LEAD_IN, is_lead_in


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "---",
        "Sure",
        "Sure, like so:",
        "Thought: The user wants an example of the format:",
        "**Thought**: you should look at the files below",
        "Okay.",
        "assistant",
        "get_weather",
        "One moment.",
        "I’ll check the weather:",
        "Let me check",
        "Checking the weather",
        "The weather is looked up now.",
        "Here is the function call:",
        "Here's the tool call to get the weather in Paris:",
        "**Tool call:**",
        "To get the weather in Oslo:",
        "To get the weather, I will call:",
        "Ich rufe das Wetter ab:",
        "Je vais chercher la météo :",
        "J'appelle la fonction :",
        "Voy a consultar el tiempo:",
        "Consultaré el tiempo:",
        "Vou verificar o tempo:",
        "Controllo subito il meteo:",
        "Я проверю погоду:",
        "Сейчас проверю погоду:",
        "我将调用 get_weather 工具：",
        "让我查一下",
        "工具调用：",
        "天気を調べます：",
        "少々お待ちください：",
        "날씨를 확인하겠습니다:",
        "확인해 볼게요:",
    ],
)
def test_lead_ins(text: str) -> None:
    """Rule 63: a whole sentence, an act of the model's own or nothing at all may stand before a call."""
    assert is_lead_in(text)


@pytest.mark.parametrize(
    "text",
    [
        "Here is an example.",
        "You can use this call.",
        "Not this:",
        "Never do:",
        "The log shows",
        "Expected result of the test",
        "The model replied",
        "Here is what happened yesterday:",
        "This calls the weather tool:",
        "Here is the tool call I made:",
        "The log shows a tool call:",
        "Sure, here is what it takes:",
        "I called:",
        "To call it, write:",
        "To make a call:",
        "例如，可以这样写：",
        "可以这样调用：",
        "好的，下面是一个例子：",
        "日志显示：",
        "次のように書きます：",
        "ログの内容：",
        "예를 들어:",
        "이렇게 호출합니다:",
        "So sieht ein Aufruf aus:",
        "Das würde ich aufrufen:",
        "Das Protokoll zeigt",
        "Voici comment on l'appelle :",
        "Le journal indique :",
        "Por ejemplo:",
        "El registro muestra:",
        "Assim se chama a função:",
        "Ecco come si chiama:",
        "Пример вызова:",
        "Так выглядит вызов функции:",
        "В журнале записано:",
        "Hier is een voorbeeld:",
        "二" * 101,
        "One.\n\nTwo.",
        "# Title",
    ],
)
def test_presentations(text: str) -> None:
    """Rule 63: what shows, reports or documents something, or leaves its sentence open, is no lead-in."""
    assert not is_lead_in(text)


def test_a_lead_in_is_short() -> None:
    """One short paragraph, whatever it says."""
    said = "I will look. " + "x" * LONGEST_LEAD_IN
    assert is_lead_in(said[:LONGEST_LEAD_IN])
    assert not is_lead_in(said)
