"""Normalize and tokenize error messages and questions, so that explain() can compare them."""

from __future__ import annotations

import builtins
import re
from functools import lru_cache

BOILERPLATE = re.compile(
    r"(?i)(?:CUDA|HIP)\s+kernel\s+errors\s+might\s+be\s+asynchronously\s+reported\s+at\s+some\s+other\s+API\s+call,?"
    r"(?:\s+so\s+the\s+stacktrace\s+below\s+might\s+be\s+incorrect)?\.?"
    r"|For\s+debugging\s+consider\s+passing\s+\w+\s*=\s*\d+\.?"
    r"|Compile\s+with\s+`?TORCH_USE_\w+_DSA`?\s+to\s+enable\s+device-side\s+assertions\.?"
    r"|Device-side\s+assertion\s+tracking\s+was\s+not\s+enabled\s+by\s+user\.?"
    r"|Search\s+for\s+`?\w+['`]?\s+in\s+https?://\S+\s+for\s+more\s+information\.?"
    r"|INTERNAL\s+ASSERT\s+FAILED(?:\s+at\s+[^,\n]*,?)?(?:\s*please\s+report\s+a\s+bug\s+to\s+PyTorch\.?)?"
    r"|Exception\s+raised\s+from[^\n]*"
    r"|frame\s+#\d+:[^\n]*"
    r"|During\s+handling\s+of\s+the\s+above\s+exception,\s+another\s+exception\s+occurred:?"
    r"|The\s+above\s+exception\s+was\s+the\s+direct\s+cause\s+of\s+the\s+following\s+exception:?"
)
"""Matches text that PyTorch and Python add to many errors, and that is specific to none of them."""

_COMMON_WORDS = """
a after an and are as at attribute be but by can cant code could do does doesnt dont during each error
errno every few for from get got have help how i if im in into is it its just me my need no not object of
on only or our out please problem run running so some steps than that the then there these this to too
torch train training try use used using want was we what when where which while why will with without
work working you your bug issue question due because epoch iteration pytorch python
"""
STOP_WORDS = {
    *_COMMON_WORDS.split(),
    *(name.lower() for name in dir(builtins) if name.endswith(("Error", "Exception", "Warning"))),
}
_FUNCTION_WORDS = """
a an the is are was my in on of to with when and very so too it at for while during from by this that i
be has have how why what do does or after until get got s
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
_CHINESE = "\u3400-\u9fff"
_SYNONYMS = tuple(
    (re.compile(words), word)
    for words, word in (
        (r"\booms?\b", "out of memory"),
        (r"\btim(?:ed?|ing)\s+out\b", "timeout"),
        (r"\b(?:hangs|hanging|hung|stuck|freez(?:es?|ing)|frozen|deadlocks?)\b", "hang"),
        (r"\b(?:amp|(?:mixed|half)\s+precision|float16)\b", "fp16"),
        (r"\b(?:util|utili[sz]ation|utility|usage)\b", "usage"),
        (r"\bonly\s+(?:at\s+)?\d+\s*%|\bunder-?used\b|\bidle\b", "low"),
        (
            r"\b(?:increas(?:es|ing)|grows|growing|grew|rises|rising|climbs|climbing|leaks?|leaking|leakage)\b",
            "grow",
        ),
        (r"\b(?:slowly|slower|slows)\b", "slow"),
        (r"\bvram\b", "memory"),
        (r"optimis", "optimiz"),
        (r"initialis", "initializ"),
        (r"scaler\s+type", "scalar type"),
    )
)
"""Synonyms: pattern to replacement, applied to questions and to the handbook alike."""
_CHINESE_SYNONYMS = tuple(
    (re.compile(words), word)
    for words, word in (
        (r"只有\d+|才\d+|上不去|跑不满|不高", "低"),
        (r"增长|增加|增大|变大|上涨|上升|升高|越来越[大高多]|涨", "增长"),
        (r"卡死|卡住|不动|挂起|没反应|没有反应|停住", "卡住"),
        (r"占用率|使用率|利用率|占用", "利用率"),
        (r"对不上|不一致|不相同|不同|不一样|不匹配|不符", "不匹配"),
        (r"缓慢|变慢|慢", "慢"),
        (r"显卡|gpu", "gpu"),
        (r"电脑|机器|主机", "机器"),
        (r"读取|载入|加载", "加载"),
        (r"损坏|坏了", "损坏"),
        (
            r"为什么|怎么办|怎么回事|怎么|如何|请问|请教|求助|解决|处理|方法|问题|报错|出错|错误|出现|特别|非常|一直|不断"
            r"|每个|训练过程中|训练时|时候|只有|总是|经常|[的了是在我都也就会有很太吗呢啊，。？！、]",
            "",
        ),
    )
)
"""The same for Chinese; stop words are replaced by nothing."""


@lru_cache(4096)
def normalize(text: str) -> str:
    """Return a message's constant words, separated by spaces, with synonyms replaced and plural -s removed.

    It is in lower case, without quotation marks, addresses, ANSI escapes, and numbers of one or two digits.
    """
    text = re.sub(r"\x1b\[[0-9;]*m|0x[0-9a-f]+|(?<=\bcan)no(?=t\b)|['’]s\b|['’`]", "", text.lower())
    for words, word in _SYNONYMS:
        text = words.sub(word, text)
    words = re.findall(r"(?<![a-z0-9])(?:[a-z][a-z0-9]*|[0-9]{3,}(?![.0-9]))", text)
    return " ".join("cuda" if w == "sim" else re.sub(r"(?<=[a-z]{3})s$", "", w) for w in words)


def bigrams(text: str) -> list[str]:
    """Return the bigrams of adjacent Chinese characters in a text."""
    return re.findall(f"(?=([{_CHINESE}]{{2}}))", text)


def tokens(text: str) -> list[str]:
    """Return a text's search terms: its normalized words without stop words, and its Chinese bigrams."""
    words = [word for word in normalize(text).split() if not {word, f"{word}s"} & STOP_WORDS]
    return words + (bigrams(compact(text)) if bigrams(text) else [])


@lru_cache(4096)
def compact(text: str) -> str:
    """Return a text in lower case without spaces and punctuation; if Chinese, synonyms are replaced."""
    text = re.sub(r"[\W_]+", "", text.lower())
    if bigrams(text):
        for words, word in _CHINESE_SYNONYMS:
            text = words.sub(word, text)
    return text


def plain_words(text: str) -> list[str]:
    """Return a question's normalized words without function words (articles, prepositions, …)."""
    return [word for word in normalize(text).split() if word not in FUNCTION_WORDS]
