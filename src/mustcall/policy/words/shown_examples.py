"""Whether the user asked to be shown something: JSON, an example, how a call is written (rule 63).

Such a user keeps the JSON object that would otherwise be read as a call. Pure; the cost is bounded, since only the
beginning and the end of a message are looked at: what is asked for stands there, what was pasted in between.
"""

import re
from collections.abc import Sequence
from functools import cache

from mustcall.core.text.possessive import at_least_one

__all__ = ["asks_to_be_shown"]

_LOOKED_AT = 1500
#: How far in front of "to JSON" the verb may stand that makes it a file's form.
_BEFORE_JSON = 80

#: What a call is talked about as.
_CALLS = r"(?:(?:tool|function|api)[- ]?call(?:s|ing)?|payloads?|request bod(?:y|ies)|syntax)"
_TALKED_OF = rf"(?:{_CALLS}|calls?|tools|requests?|format)"
#: A tool as people write its name, or speak of it: "how is get_weather called" is no question about taxis. What was
#: read of a name is never given back, which keeps the cost of a long one small.
_NAME_PART = "_[a-z0-9]{1,30}+"
_TOOL = (
    rf"(?:`[^`\n]{{1,80}}+`|(?<![a-z0-9_])(?:[a-z][a-z0-9]{{0,30}}+{at_least_one(_NAME_PART, most=9)}|"
    r"(?-i:[a-z]{1,30}+[A-Z][A-Za-z0-9]{0,60}+))|"
    r"\b(?:tool|function|funktion|werkzeug|fonction|outil|función|herramienta|função|ferramenta|funzione|strumento|"
    r"функци|инструмент)\w{0,12}+|函[数數]|工具|接口|関数|ツール|함수|도구)"
)
#: The rest of a clause, as far as it is looked at.
_FEW = r"[^.?!。？！\n]{0,40}?"
_SOME = r"[^.?!。？！\n]{0,60}?"

# JSON as the form of the answer: "in JSON", "as a JSON array", "the JSON of a call", "the JSON you would send".
_LATIN_JSON = r"(?<![./\w])json"
_CJK_JSON = r"(?<![./a-z0-9_-])json"
_JSON = (
    r"\b(?:as|in|into|to|only|valid|raw|pure|en|als|em|в виде|в формате|in formato|au format|al formato|no formato) "
    rf"(?:an? |valid |pure |raw |formato |format )?{_LATIN_JSON}\b|{_LATIN_JSON}l\b|"
    rf"{_LATIN_JSON} (?:of|for|you|that|object|array|list|schema|fixture|document|format|payload|body|lines)\b|"
    rf"(?:用|以|按|成|[为為]) ?{_CJK_JSON}|{_CJK_JSON} ?(?:格式|形式|で|形式で|으로|형식)|"
    r"\b(?:as|in|to) (?:yaml|toml|xml)\b"
)
#: Whoever wants something stored, in whatever form, does not ask to be shown it.
_STORES = (
    r"\b(?:sav|stor|export|dump|persist|append|upload|archiv|speicher|sicher|enregistr|sauvegard|export|guard|guarde|"
    r"salv|сохран|запиш|экспорт)\w*|保存|存[入为為成到]|[导導]出|[写寫]入|書き込|저장|내보내"
)

_ASKS = {
    "en": (
        # An example.
        r"\b(?:an?|some|few|another|minimal|short|simple|one|two|three|good|working|complete|with|list) "
        r"(?:\w+ )?(?:examples?|snippets?)\b|\bexamples? (?:of|calls?|requests?|usage)\b|"
        r"\bsample (?:calls?|requests?)\b|"
        # How a call is written, or what one is.
        rf"\bwhat (?:do|does|did|would|will|should|might|is|are) (?:[^.?!\n]{{0,60}} )?(?:look like|{_CALLS})\b|"
        r"\bhow (?:do|does|can|could|would|should|to|is|are) (?:[^.?!\n]{0,40} )?(?:call(?:ed|s)?|invoked?|formatted|"
        r"encoded|serialised|serialized|write (?:this|a|the) call|use (?:this|the|a) (?:tool|function))\b|"
        rf"\b(?:explain|describe|document|define|teach) (?:[^.?!\n]{{0,60}} )?{_TALKED_OF}\b|"
        r"\b(?:write|draft|show|give|print|generate|make|produce|prepare|compose|translate) "
        rf"(?:[^.?!\n]{{0,60}} )?(?:{_CALLS}|fixtures?|docstrings?|curl|boilerplate)\b|"
        r"\b(?:which|what) (?:are the )?(?:arguments?|parameters?|args|params|inputs?) "
        rf"(?:of|for|do|does|can|must|should|has|have|are|is|will)\b{_SOME}{_TOOL}|"
        # The format by its name; in other letters that is a library for pages.
        r"\b(?:explain|describe|show|write|give|print|illustrate|demonstrate|what(?:'s| is| are| does| would)|"
        r"how (?:is|do|does|would))\b[^.?!\n]{0,60}?\b(?-i:ReAct)\b|"
        # What was said or sent before.
        r"\bwhat (?:exactly )?(?:did|have) you (?:just )?(?:sen[dt]|call(?:ed)?|pass(?:ed)?|wr(?:ite|itten)|"
        r"said|say)\b|"
        r"\b(?:repeat|quote|restate|echo|reproduce) (?:me )?(?:exactly )?your (?:very )?(?:last|previous|earlier|first|"
        r"prior|own)? ?(?:messages?|repl(?:y|ies)|answers?|responses?|outputs?|words)\b|"
        r"\b(?:repeat|quote|restate|reproduce|copy) (?:[^.?!\n]{0,60} )?(?:verbatim|word for word)\b|"
        r"\b(?:do not|don't|without) (?:actually )?(?:run|running|call|calling|execut\w*|invok\w*)\b|"
        r"\byou would (?:send|write|call|make)\b|\bdry[- ]run\b"
    ),
    "de": (
        r"(?<!\bzum )\bbeispiele?\b|\bbeispielaufrufe?\b|\bwie (?:sieht|sähe|lautet)\b" + _FEW + r"aufruf|"
        rf"\bwie (?:wird|werden|ruft|rufe|nutzt|benutzt|verwendet|schreibt|kann)\b{_FEW}{_TOOL}{_FEW}"
        r"\b(?:auf|aufgerufen|aufrufen|benutzt|verwendet|man)\b|\bwie (?:ruft|nutzt|benutzt|verwendet|schreibt) man\b"
        rf"{_FEW}{_TOOL}|\bwelche (?:argumente|parameter)\b{_SOME}{_TOOL}|"
        r"\b(?:nicht|ohne es|ohne ihn) (?:ausführen|auszuführen|aufrufen|aufzurufen)\b|"
        r"\b(?:wiederhol|zitier)\w*\b" + _FEW + r"\b(?:letzte|vorige|vorherige|deine|ihre)\w* (?:\w+ )?"
        r"(?:nachricht|antwort|ausgabe)"
    ),
    "fr": (
        rf"\b(?:un|une|des|d') ?exemples?\b|\bcomment\b{_FEW}\b(?:appel|invoqu|utilis|écri)[\w-]*{_FEW}{_TOOL}|"
        rf"\bquels? (?:sont les )?(?:arguments?|paramètres?)\b{_SOME}{_TOOL}|\bsans (?:l')?(?:exécuter|appeler)\b|"
        r"\bn'exécute[zs]? pas\b|\b(?:répète|répétez|cite)\w*\b"
        + _FEW
        + r"\b(?:ton|ta|votre) (?:derni(?:er|ère)|précédente?)? ?"
        r"(?:message|réponse)|\bà quoi ressemble\b" + _FEW + r"\bappel"
    ),
    "es": (
        rf"\bun ejemplo\b|\bcómo (?:se |puedo |hay que )?(?:llam|invo|us|utiliz|escrib)\w*{_FEW}{_TOOL}|"
        rf"\bqué (?:argumentos?|parámetros?)\b{_SOME}{_TOOL}|\bsin (?:ejecutar|llamar)|\bno (?:lo |la )?ejecutes?\b|"
        r"\b(?:repite|repita|cita)\b" + _FEW + r"\b(?:tu|su) (?:últim[oa] )?(?:mensaje|respuesta)|"
        r"\bcómo (?:es|sería|se ve|luce)\b" + _FEW + r"\bllamada"
    ),
    "pt": (
        rf"\bum exemplo\b|\bcomo (?:se |posso |eu )?(?:cham|invo|us|utiliz|escrev)\w*{_FEW}{_TOOL}|"
        rf"\b(?:quais|que) (?:são os )?(?:argumentos?|parâmetros?)\b{_SOME}{_TOOL}|\bsem (?:o |a )?(?:executar|chamar)|"
        r"\bnão execut\w+|\b(?:repita|repete|cite)\b" + _FEW + r"\b(?:sua|tua|seu|teu) (?:últim[oa] )?"
        r"(?:mensagem|resposta)"
    ),
    "it": (
        rf"\bun esempio\b|\bcome (?:si |posso )?(?:chiam|invoc|us|utilizz|scriv)\w*{_FEW}{_TOOL}|"
        rf"\bquali (?:sono gli )?(?:argomenti|parametri)\b{_SOME}{_TOOL}|\bsenza (?:eseguir|chiamar)\w+|"
        r"\bnon eseguir\w+|\b(?:ripeti|ripeta|cita)\b" + _FEW + r"\b(?:tuo|tua|suo|sua) (?:ultim[oa] )?"
        r"(?:messaggio|risposta)"
    ),
    "ru": (
        rf"\b(?:покаж|привед|дай|напиш)\w*{_FEW}\bпример|\bкак\b{_FEW}\b(?:вызва|вызыва|использ|выглядит вызов)\w*"
        rf"{_FEW}{_TOOL}|\bкак выглядит вызов|\bкакие (?:аргументы|параметры)\b{_SOME}{_TOOL}|"
        r"\bне (?:выполняй|запускай|вызывай)|\bповтори\w*\b"
        + _FEW
        + r"\b(?:последн|предыдущ|сво)\w+ (?:\w+ )?(?:сообщени|ответ)"
    ),
    "zh": (
        rf"(?:[给給]|看|[写寫]|展示|[显顯]示|提供){_FEW}(?:示例|例子|[范範]例|[样樣]例)|[举舉](?:[个個]|一[个個])?例|"
        r"(?:怎[么麼样樣]|如何)(?:[调調]用|呼叫)|"
        rf"{_TOOL}{_FEW}(?:怎[么麼样樣]|如何)(?:用|使用|[调調]用|[写寫])|(?:怎[么麼样樣]|如何)(?:使)?用{_FEW}{_TOOL}|"
        rf"{_TOOL}{_FEW}(?:哪些|什[么麼])(?:[参參][数數]|引[数數])|[调調]用{_FEW}(?:格式|[语語]法)|"
        r"(?:不要|[请請]?勿|[别別])(?:真的|[实實][际際])?(?:[执執]行|[运運]行|[调調]用)|"
        r"(?:重[复複]|复述|複述|引用)"
        + _FEW
        + r"(?:上一|上[条條]|[刚剛]才|最[后後]|之前)"
        + _FEW
        + r"(?:消息|回[复複答]|答案|[话話])"
    ),
    "ja": (
        rf"(?:例|例文|サンプル)を{_FEW}(?:見せ|示し|教え|書い|くだ|挙げ)|呼び出し方|呼び出す方法|{_TOOL}{_FEW}(?:使い方|書き方|引数)|"
        rf"どう(?:やって)?{_FEW}呼(?:び出|ぶ|べ)|実行しないで|呼び出さないで|"
        r"(?:前|最後|直前|さっき)の(?:メッセージ|返信|回答|返答)を" + _FEW + r"(?:繰り返|そのまま)"
    ),
    "ko": (
        rf"(?:예시|예제|예)를? ?{_FEW}(?:보여|들어|알려|작성)|호출 ?(?:방법|하는 (?:방)?법)|어떻게 (?:호출|부르)|"
        rf"{_TOOL}{_FEW}(?:사용법|인수|매개변수|어떻게 (?:사용|쓰))|(?:실행|호출)하지 ?(?:마|말)|"
        r"(?:마지막|이전|방금)" + _FEW + r"(?:메시지|답변|응답)" + _FEW + r"(?:반복|그대로)"
    ),
}


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return what asks, JSON as a form, and what stores. Made at first use: it takes longer than an import should."""
    asks = "|".join(_ASKS.values())
    asking, form, storing = (re.compile(words, re.IGNORECASE) for words in (asks, _JSON, _STORES))
    return asking, form, storing


def asks_to_be_shown(texts: Sequence[str]) -> bool:
    """Tell whether a user message, given as its texts, asks for JSON, an example or an explanation of the format."""
    return any(_asks(window) for text in texts for window in _windows(text))


def _asks(text: str) -> bool:
    asking, form, storing = _patterns()
    text = text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    if asking.search(text) is not None:
        return True
    for found in form.finditer(text):
        clause = re.split(r"[.?!。？！\n]", text[max(0, found.start() - _BEFORE_JSON) : found.start()])[-1]
        if storing.search(clause) is None:
            return True
    return False


def _windows(text: str) -> tuple[str, ...]:
    if len(text) <= 2 * _LOOKED_AT:
        return (text,)
    return text[:_LOOKED_AT], text[-_LOOKED_AT:]
