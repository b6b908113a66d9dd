"""Parsing: turns the input of a caller into values of the right types, or into one sentence about its fault.

It is strict: a key that the API does not have, a key given twice, and a value of the wrong form are refused, so that no
caller is misunderstood. This is the only place where input of callers is read.
"""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Collection, Mapping
from typing import Any

from rmsplugin.accounts import Account
from rmsplugin.errors import RmspluginError
from rmsplugin.model import job_names
from rmsplugin.model.event_cursor import EventCursor

#: How long any request may wait for something to happen, in seconds; a longer wait is cut short.
MAX_WAIT_S = 300.0
#: Most events of one answer.
MAX_EVENTS = 10_000
#: The most CPUs or MiB that a request may name.
MAX_AMOUNT = 999_999_999

_SHOWN = 60  # characters of what was sent that are repeated in an error
_MAX_EVENT_ID = 2**53
_DAY_S = 86400

_JOB_ID = re.compile(r"[1-9][0-9]{0,9}")
_DISPLAY_ID = re.compile(r"[1-9][0-9]{0,9}(_(0|[1-9][0-9]{0,9}))?")
_OPERATION_ID = re.compile(r"[1-9][0-9]{0,14}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_GROUP = re.compile(r"[A-Za-z0-9_.+-]{1,64}")
_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_VM_NAME = re.compile(r"vjob[1-9][0-9]{0,9}-(0|[1-9][0-9]{0,5})")
_SENTENCE = re.compile(r"[^\x00-\x1f\x7f]{0,1000}")
_MOMENT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_WORDS = re.compile(r"[^\x00-\x1f\x7f,]+(,[^\x00-\x1f\x7f,]+)*")
_WORDS_LENGTH = 4096
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


class BadRequestError(RmspluginError):
    """The request does not have the API's form."""


def job_id(text: str) -> int:
    """A job's number, as in ``12``. Raises BadRequestError."""
    return int(_matching(_JOB_ID, text, "a job id, for example 12"))


def display_id(text: str) -> str:
    """The display id of a vjob, ``12`` or ``12_3``. Raises BadRequestError."""
    return _matching(_DISPLAY_ID, text, "a job id or an array element, for example 12 or 12_3")


def job_name(text: str) -> str:
    """A name for one or several vjobs: ``12``, ``12_3`` or ``12_[1-3,7]``. Raises BadRequestError."""
    try:
        return job_names.parse(text).text
    except ValueError as error:
        raise BadRequestError(str(error)) from None


def operation_id(text: str) -> int:
    """An operation's number. Raises BadRequestError."""
    return int(_matching(_OPERATION_ID, text, "the number of an operation"))


def aside_number(text: str) -> int:
    """The number of saved states that were put aside. Raises BadRequestError."""
    return int(_matching(_OPERATION_ID, text, "the number of saved states that were put aside"))


def node(text: str) -> str:
    """A node's name. Raises BadRequestError."""
    return _matching(_HOST_NAME, text, "the name of a node")


def report_number(text: str) -> int:
    """The number of a report. Raises BadRequestError."""
    return int(_matching(_OPERATION_ID, text, "the number of a report"))


def cycle_number(text: str) -> int:
    """The number of a cycle that decided something. Raises BadRequestError."""
    return int(_matching(_OPERATION_ID, text, "the number of a cycle"))


class Query:
    """The part of a request's path behind the question mark."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    @classmethod
    def parse(cls, raw_path: str, allowed: Collection[str]) -> Query:
        """Read the query of a path as it came over the wire.

        Raises:
            BadRequestError: a key is not among ``allowed``, or comes twice, or the encoding is broken.
        """
        text = raw_path.partition("?")[2].partition("#")[0]
        if _BAD_PERCENT.search(text):
            raise BadRequestError("the query has a % that is not followed by two hexadecimal digits")
        try:
            pairs = urllib.parse.parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=16)
        except ValueError:
            raise BadRequestError("the query cannot be read: it is not UTF-8, or has more than 16 keys") from None
        return cls(_known(pairs, allowed, "the query"))

    def seconds(self, key: str) -> float:
        """A time to wait in seconds, ``MAX_WAIT_S`` at most; 0 if it was not given. Raises BadRequestError."""
        text = self._values.get(key, "0")
        if not _SECONDS.fullmatch(text):
            raise BadRequestError(f"{key} is {_shown(text)}; it has to be a number of seconds from 0 on, as in 2.5")
        return min(float(text), MAX_WAIT_S)

    def flag(self, key: str) -> bool:
        """Whether ``KEY=1`` was given. Raises BadRequestError."""
        text = self._values.get(key, "0")
        if text not in ("0", "1"):
            raise BadRequestError(f"{key} is {_shown(text)}; it has to be 0 or 1")
        return text == "1"

    def number(self, key: str, default: int, maximum: int = _MAX_EVENT_ID) -> int:
        """A whole number from 0 to ``maximum``. Raises BadRequestError."""
        text = self._values.get(key, str(default))
        if not _NUMBER.fullmatch(text) or int(text) > maximum:
            raise BadRequestError(f"{key} is {_shown(text)}; it has to be a whole number from 0 to {maximum}")
        return int(text)

    def job_name(self, key: str) -> str:
        """A name for vjobs; "" if none was given. Raises BadRequestError."""
        text = self._values.get(key, "")
        return job_name(text) if text else ""

    def text(self, key: str) -> str:
        """The value as it came; "" if none was given. Whoever is asked with it looks at it."""
        return self._values.get(key, "")

    def moment(self, key: str) -> float:
        """A time in seconds since the epoch; 0 if none was given. Raises BadRequestError."""
        text = self._values.get(key, "0")
        if not _MOMENT.fullmatch(text):
            raise BadRequestError(f"{key} is {_shown(text)}; it has to be a time in seconds since the epoch")
        return float(text)

    def event_cursor(self, key: str) -> EventCursor | None:
        """A place in the events; None if none was given. Raises BadRequestError."""
        text = self._values.get(key, "")
        try:
            return EventCursor.parse(text) if text else None
        except ValueError as error:
            raise BadRequestError(f"{key} is {_shown(text)}; {error}") from None

    def words(self, key: str, among: Collection[str] = ()) -> frozenset[str]:
        """The words between the commas; none if the key was not given.

        Args:
            key: of the query.
            among: the words that there are; none: any are.

        Raises:
            BadRequestError: there are no words, or there is one that is not among them.
        """
        text = self._values.get(key, "")
        if not text:
            return frozenset()
        if len(text) > _WORDS_LENGTH or not _WORDS.fullmatch(text):
            raise BadRequestError(f"{key} is {_shown(text)}; it has to be words with commas between them")
        found = text.split(",")
        if strange := [word for word in found if among and word not in among]:
            raise BadRequestError(f"{key} has {_shown(strange[0])}, which is none of {', '.join(among)}")
        return frozenset(found)

    def host(self, key: str) -> str:
        """The name of a host; "" if none was given. Raises BadRequestError."""
        return _name(key, self._values.get(key, ""), _HOST_NAME, "the name of a host")

    def group(self, key: str) -> str:
        """The name of a group of VM hosts; "" if none was given. Raises BadRequestError."""
        return _name(key, self._values.get(key, ""), _GROUP, "the name of a group")


class Body:
    """The JSON object that a request carries."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    @classmethod
    def parse(cls, data: bytes, allowed: Collection[str]) -> Body:
        """Read the body of a request; none at all is an empty object.

        Raises:
            BadRequestError: the body is not JSON, not an object, or has a key twice or one not among ``allowed``.
        """

        def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            return _known(pairs, [key for key, _ in pairs], "the body")

        try:
            value = json.loads(data.decode("utf-8"), object_pairs_hook=unique) if data else {}
        except (ValueError, RecursionError):  # not UTF-8, not JSON, or nested without end
            raise BadRequestError("the body is not JSON") from None
        if not isinstance(value, dict):
            raise BadRequestError("the body is not a JSON object")
        return cls(_known(list(value.items()), allowed, "the body"))

    def integer(self, key: str, default: int, maximum: int) -> int:
        """A whole number from 0 to ``maximum``. Raises BadRequestError."""
        value = self._values.get(key, default)
        if type(value) is not int or not 0 <= value <= maximum:
            raise BadRequestError(f"{key} has to be a whole number from 0 to {maximum}")
        return value

    def node(self, key: str) -> str:
        """The name of a node; "" if none was given. Raises BadRequestError."""
        return _name(key, self._values.get(key), _HOST_NAME, "the name of a node")

    def group(self, key: str) -> str:
        """The name of a group of VM hosts; "" if none was given. Raises BadRequestError."""
        return _name(key, self._values.get(key), _GROUP, "the name of a group")

    def vm(self, key: str) -> str:
        """The name of a VM; "" if none was given. Raises BadRequestError."""
        return _name(key, self._values.get(key), _VM_NAME, "the name of a VM, as in vjob12-0")

    def vms(self, key: str) -> tuple[str, ...]:
        """A list of names of VMs; an empty one if none was given. Raises BadRequestError."""
        value = self._values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(name, str) and _VM_NAME.fullmatch(name) for name in value):
            raise BadRequestError(f"{key} has to be a list of names of VMs, as in vjob12-0")
        return tuple(value)

    def vjobs(self, key: str) -> tuple[str, ...]:
        """A list of display ids of vjobs; an empty one if none was given. Raises BadRequestError."""
        value = self._values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise BadRequestError(f"{key} has to be a list of job ids or array elements, for example 12 or 12_3")
        return tuple(map(job_name, value))

    def moment(self, key: str) -> float | None:
        """A time in seconds since the epoch; None if none was given. Raises BadRequestError."""
        value = self._values.get(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not 0 <= value <= _MAX_EVENT_ID:
            raise BadRequestError(f"{key} has to be a number of seconds since the epoch")
        return float(value)

    def amount(self, key: str) -> int | None:
        """A number of CPUs or MiB from 0 on; None if none was given. Raises BadRequestError."""
        value = self._values.get(key)
        if value is None:
            return None
        if type(value) is not int or not 0 <= value <= MAX_AMOUNT:
            raise BadRequestError(f"{key} has to be a whole number from 0 to {MAX_AMOUNT}")
        return value

    def seconds(self, key: str) -> float:
        """A time that has passed, a day at most; 0 if none was given. Raises BadRequestError."""
        value = self._values.get(key, 0.0)
        if type(value) not in (int, float) or not 0 <= value <= _DAY_S:
            raise BadRequestError(f"{key} has to be a number of seconds from 0 to {_DAY_S}")
        return float(value)

    def flag(self, key: str) -> bool:
        """True or false; false if it was not given. Raises BadRequestError."""
        value = self._values.get(key, False)
        if not isinstance(value, bool):
            raise BadRequestError(f"{key} has to be true or false")
        return value

    def words(self, key: str) -> tuple[str, ...]:
        """A list of names of any kind; an empty one if none was given. Raises BadRequestError."""
        value = self._values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) and _SENTENCE.fullmatch(one) for one in value):
            raise BadRequestError(f"{key} has to be a list of names, each of one line and at most 1000 characters")
        return tuple(value)

    def account(self) -> Account:
        """The account that the whole body describes. Raises BadRequestError."""
        try:
            return Account.parse(self._values)
        except ValueError as error:
            raise BadRequestError(str(error)) from None

    def choice(self, key: str, choices: Collection[str]) -> str:
        """One of these words. Raises BadRequestError."""
        value = self._values.get(key)
        if not isinstance(value, str) or value not in choices:
            raise BadRequestError(f"{key} has to be one of {', '.join(choices)}")
        return value

    def sentence(self, key: str) -> str:
        """A text of one line and a thousand characters at most; "" if none was given. Raises BadRequestError."""
        value = self._values.get(key, "")
        if not isinstance(value, str) or not _SENTENCE.fullmatch(value):
            raise BadRequestError(f"{key} has to be a text of one line, of at most 1000 characters")
        return value


def _known(pairs: list[tuple[str, Any]], allowed: Collection[str], where: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key not in allowed:
            known = ", ".join(sorted(allowed)) or "none"
            raise BadRequestError(
                f"{where} has the key {_shown(key)}, which this request does not have (it has: {known})"
            )
        if key in values:
            raise BadRequestError(f"{where} has the key {_shown(key)} twice")
        values[key] = value
    return values


def _matching(pattern: re.Pattern[str], text: str, what: str) -> str:
    if not pattern.fullmatch(text):
        raise BadRequestError(f"{_shown(text)} is not {what}")
    return text


def _name(key: str, value: object, pattern: re.Pattern[str], what: str) -> str:
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise BadRequestError(f"{key} has to be {what}")
    return value


def _shown(text: str) -> str:
    """As much of the text sent as fits into a line."""
    return ascii(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
