"""Finds the one useful sentence in the exceptions that Spark wraps around it.

A SparkError raised in a Python worker reaches the driver as text: a Python traceback within a Java one.
"""

import re

from rocketd.spark import errors
from rocketd.spark.errors import SparkError

_KINDS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, SparkError)}
_OURS = re.compile(rf"^(?:\w+: )*?rocketd\.spark\.errors\.({'|'.join(_KINDS)}): (.*)$", re.MULTILINE)
_PYTHON = re.compile(r"^((?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt)): (.*)$", re.MULTILINE)
_LOST_WORKER = "Python worker exited unexpectedly"
_TRACEBACK = "Traceback (most recent call last)"
_LOST_JAVA = "Py4JNetworkError"
_NOT_SERIALIZABLE = "Task not serializable"
"""Spark's whole message about a failed serialization, whatever failed in it."""


def unwrapped(error: BaseException) -> SparkError:
    """Return `error` as a SparkError of one sentence: ours if one is inside, else one made from Spark's text."""
    chain = _chain(error)
    for each in chain:
        if isinstance(each, SparkError):
            return each
    if any(type(each).__name__ == _LOST_JAVA or isinstance(each, ConnectionError) for each in chain):
        return SparkError(
            "Spark's Java has ended: it was killed, most often for want of memory; give it more with --driver-memory, or "
            "free some"
        )
    texts = [_text(each) for each in chain]
    for text in texts:
        if found := _OURS.findall(text):
            name, message = found[-1]
            return _KINDS[name](message.strip())
    for text in texts:
        if _LOST_WORKER in text:
            return SparkError(
                "a Python worker of Spark ended without a word: it was killed, most often for want of memory, or crashed; "
                "give it more memory, or run fewer tasks at once with --master local[1]"
            )
    for text in texts:
        # Java's exceptions look similar.
        if _TRACEBACK in text and (found := _PYTHON.findall(text)):
            return SparkError(f"a task failed: {found[-1][0]}: {found[-1][1].strip()}")
    sentence = _first_line(texts[0]) or type(error).__name__
    if _NOT_SERIALIZABLE in sentence and (cause := _root_cause(error)):
        return SparkError(f"{sentence}: {cause}")
    return SparkError(sentence)


def _root_cause(error: BaseException) -> str:
    """Return the class and message of Java's innermost exception, or "" if there is only one or Java has ended."""
    root = error
    while (cause := getattr(root, "_cause", None)) is not None:
        root = cause
    if root is error:
        return ""
    # PySpark keeps either the Java exception or its text with the class.
    java = getattr(root, "_origin", None)
    try:
        return _first_line(str(root if java is None else java.toString()))
    except Exception:
        return ""


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain:
        chain.append(at)
        at = at.__cause__ or at.__context__
    return chain


def _text(error: BaseException) -> str:
    """Return the whole text of the exception, including its Java side."""
    java = getattr(error, "java_exception", None)
    parts = [str(error)]
    if java is not None:
        try:
            parts.append(str(java.toString()))
        except Exception:
            # Java has ended: there is no more text.
            pass
    return "\n".join(parts)


def _first_line(text: str) -> str:
    for line in text.splitlines():
        if line.strip():
            return line.strip()
    return ""
