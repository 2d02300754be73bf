"""How much the words beside a call say, and whether they show or act, in the languages models use (rule 63).

The words that show and act are tables by language, and hints only: `leadin` decides by the shape of a text first.
Scripts without blanks between words are measured by their letters. Pure; linear in the text.
"""

import re
from functools import cache

__all__ = ["acts", "count_words", "has_substance", "shows", "straight"]

#: More than this behind a call is prose of substance.
_MOST_WORDS = 3
_MOST_CHARACTERS = 40

#: A letter of these is about a word.
_IDEOGRAPHS = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
#: Two letters of these are about a word: Thai, Lao, Burmese, Khmer, kana, and Hangul, whose few blanks divide phrases.
_SYLLABLES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\uac00-\ud7af\uff66-\uff9d"
_IDEOGRAPH = re.compile(f"[{_IDEOGRAPHS}]")
_SYLLABLE = re.compile(f"[{_SYLLABLES}]")
_SPACED_WORD = re.compile(rf"[^\W{_IDEOGRAPHS}{_SYLLABLES}]+")

# No alternative looks ahead, so that a text which shows something still does when more of it has come.
_SHOWING = {
    "en": r"examples?|e\.g|for instance|samples?|snippets?|templates?|placeholders?|syntax|schemas?|formats?|formatted|"
    r"looks? like|like this|would (?:be|look|send|write)|hypothetical(?:ly)?|imagine|suppose|illustrat\w*|"
    r"demonstrat\w*|for reference|how to (?:call|use|invoke|write|format)|shows? (?:you )?how|replace|"
    r"(?:do not|don't|never) (?:run|execute|call|send|use|do|write)|not (?:be )?(?:run|executed)|"
    r"equivalent|wrong|invalid|incorrect|instead of|definitions?|defined|documentation|specification|"
    r"(?<![./\w])json|yaml",
    "de": r"beispiel\w*|bspw|z\. ?b\.|so sieht|sieht (?:so|wie folgt|dann)|würden?|vorlagen?|platzhalter|syntax|"
    r"format(?:iert)?|schema|falsch|ungültig|anstatt|wie man|nicht aus(?:führen|geführt)|zur veranschaulichung",
    "fr": r"exemples?|par ex|voi(?:ci|là) comment|comment (?:on|l')|ressembl\w*|modèle d|gabarit|syntaxe|schéma|"
    r"format\w*|incorrecte?|invalide|au lieu de|ne (?:pas (?:l')?|l')?exécut\w*|n'exécut\w*",
    "es": r"ejemplos?|así (?:es como|se|sería)|cómo se|se ve así|tendría|plantilla|sintaxis|esquema|formato|"
    r"incorrect[oa]|inválid[oa]|en lugar de|no (?:lo |la )?ejecut\w*",
    "pt": r"exemplos?|(?:é )?assim que|como se|ficaria|teria esta|sintaxe|esquema|formato|incorret[oa]|"
    r"inválid[oa]|em vez de|não (?:o |a )?execut\w*",
    "it": r"esempi(?:o\w*)?|ecco come|come si|si presenta|sarebbe|sintassi|schema|formato|errat[oa]|non valid[oa]|"
    r"invece di|non (?:lo |la )?esegu\w*",
    "ru": r"пример\w*|например|образ(?:ец|цы)|шаблон\w*|формат\w*|синтаксис\w*|схем[аы]|выглядит|выглядел\w*|"
    r"так (?:пишется|вызывается|вызывают)|неверн\w*|неправильн\w*|вместо|не (?:выполня|запуска|вызыва)\w*",
}
_SHOWING_UNSPACED = {
    "zh": "例如|比如|譬如|示例|例子|[范範样樣]例|[举舉]例|格式|[语語]法|模板|[写寫]法|用法|示意|假[设設]|"
    "[这這][样樣](?:[写寫]|[调調]用|使用|呼叫)|看起[来來]|占位|(?:[错錯][误誤]|不正[确確])的|"
    "(?:不要|[请請]?勿|[别別])(?:[执執]行|[运運]行|[调調]用)|[仅僅]供",
    "ja": "例えば|たとえば|例[です:：をはと]|[のし用]例|(?:次|以下|この)のように|このように|サンプル|書式|形式|構文|"
    "テンプレート|書き方|呼び出し方|使い方|間違|誤った|実行しない",
    "ko": "예를 들|예시|예제|예:|샘플|형식|문법|구문|템플릿|이렇게|다음과 같이|처럼 (?:보|생)|잘못된|실행하지",
}
_ACTING = {
    "en": r"(?:i|we)(?:'ll| will| need| can| must| should| have to|'d like)|i(?:'m| am)|we(?:'re| are) going|let me|"
    r"let us|let's|calling|checking|using|invoking|executing|retrieving|querying|opening|reading|"
    r"looking up|searching|fetching|getting|running|one moment|"
    r"here(?: is|'s| are|'re) (?:the|my) (?:[\w-]+ ){0,3}(?:tool|function)[ _-]?calls?"
    r"(?! (?:i|we|you|it|that|which|from|sent|made|of|in)\b)",
    "de": r"ich(?! (?:habe|hatte|hätte))|lass(?:en sie)? (?:mich|uns)|(?:einen |kleinen )?(?:moment|augenblick)",
    "fr": r"je (?!(?:l'|les? |la )?\w+rais\b|l'ai\b)[\w']+|j'(?!ai\b|avais\b|\w+rais\b)\w+|"
    r"nous allons|laisse[zr]?[- ]moi|un (?:instant|moment)|voyons|vérifions",
    "es": r"voy a|vamos a|estoy|d[ée]ja(?:me|dme)|perm[íi]t[ea]me|un (?:momento|segundo)|necesito|llamo|consulto|busco|"
    r"uso|compruebo|\w{2,}ré|\w{2,}(?:ando|iendo)",
    "pt": r"vou|vamos|estou|deix[ea](?:-me)?|um (?:momento|instante)|preciso|chamo|consulto|busco|\w{2,}rei|"
    r"\w{2,}(?:ando|endo|indo)",
    "it": r"sto|lascia(?:mi|temi)|fammi|un (?:momento|attimo)|devo|chiamo|cerco|controllo|verifico|uso|consulto|"
    r"\w{2,}rò",
    "ru": r"я(?! бы)|сейчас|дава(?:й|йте)|позвольте|(?:одну )?(?:минут|секунд)\w+|проверяю|проверю|посмотрю|смотрю|ищу|"
    r"вызываю|вызову|запускаю|выполняю|получаю|запрашиваю",
}
_ACTING_UNSPACED = {
    "zh": "(?:我|我[们們])(?:[将將]|[会會]|[来來]|要|先|需要|[现現]在|[这這]就|[马馬]上|可以|正在|[帮幫])|[让讓]我|"
    "正在|稍[等候]|[马馬]上|接下[来來]",
    "ja": "(?:し|べ|び|み|行き|出し)ます|(?:し|べ|び|み)てみま|ましょう|お待ち",
    "ko": "겠습니다|[ㄱ-힣]게요|잠시만|(?:합|봅|찾)니다",
}
#: A lead-in that is nothing but this names what follows as the model's call.
_LABELS = (
    r"(?:tool|function)[ _-]?calls?|(?:werkzeug|funktions|tool)-?aufruf|appel (?:de (?:la )?fonction|d'outil)|"
    r"llamada (?:a|de) (?:la )?(?:función|herramienta)|chamada de (?:função|ferramenta)|"
    r"chiamata (?:di|alla) funzione|вызов (?:функции|инструмента)|(?:函[数數]|工具)[调調]用|"
    r"(?:関数|ツール)(?:の)?呼び出し|(?:함수|도구) 호출"
)


def _either(*tables: dict[str, str]) -> str:
    return "|".join(alternatives for table in tables for alternatives in table.values())


@cache
def _words(kind: str) -> re.Pattern[str]:
    """Return the words of a kind. Made at first use: it takes longer than importing a module should."""
    match kind:
        case "shows":  # whole words, where words have borders
            pattern = rf"\b(?:{_either(_SHOWING)})\b|{_either(_SHOWING_UNSPACED)}"
        case "begins to show":  # the word may not have ended yet
            pattern = rf"\b(?:{_either(_SHOWING)})|{_either(_SHOWING_UNSPACED)}"
        case _:
            pattern = rf"\b(?:{_either(_ACTING)})(?!\w)|{_either(_ACTING_UNSPACED)}|\A\W*(?:{_LABELS})\W*\Z"
    return re.compile(pattern, re.IGNORECASE)


def shows(text: str) -> bool:
    """Tell whether a text presents something to look at, or says not to run it."""
    return _words("shows").search(straight(text)) is not None


def acts(text: str) -> bool:
    """Tell whether a model speaks in a text of what it does itself, or names what follows as its call."""
    return _words("acts").search(straight(text)) is not None


def straight(text: str) -> str:
    """Return a text with straight apostrophes, as the tables have them."""
    return text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")


def count_words(text: str) -> int:
    """Return about how many words a text has, whatever its script; more text never has fewer."""
    ideographs, syllables = (sum(1 for _ in letter.finditer(text)) for letter in (_IDEOGRAPH, _SYLLABLE))
    return sum(1 for _ in _SPACED_WORD.finditer(text)) + ideographs + syllables // 2


def has_substance(said: str) -> bool:
    """Tell whether a text beside calls is more than a closing word or what is left of a control token.

    What has substance keeps it when more text comes, so that it does not matter where a stream is cut.
    """
    said = said.rstrip()
    return (
        len(said) > _MOST_CHARACTERS
        or count_words(said) > _MOST_WORDS
        or _words("begins to show").search(straight(said)) is not None
    )
