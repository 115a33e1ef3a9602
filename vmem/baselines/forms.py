"""JSON from language models, weak ones too: a form, the call that fills it in, one more try.

A server that takes JSON schemas is held to the form's (`ChatRequest.json_schema`; the client finds
out whether it does); any other is asked in words, so a prompt must show the form as well. What
comes back is read the same way: the first JSON object in it that fits the form. Of a list that
ended at the limit of tokens, as small models' lists do, the whole entries are kept.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from vmem.errors import ModelFormatError
from vmem.ports import ChatModel, ChatRequest
from vmem.types import Usage

AGAIN = (
    "\n\nYour last reply could not be read. Reply with JSON of the form asked for, alone and short."
)
"""Put below the prompt of the second and last try."""

F = TypeVar("F", bound="Form")


class Form(BaseModel):
    """What a reply is to say; a default stands for what a model leaves out.

    A number may stand for a text: asked how many, models answer with one. At least one field
    should have no default, or any JSON object will do.

    Attributes:
        kept_cut: Of a reply that ended at its limit of tokens, what was said in full is of use;
            else, as where half a call would be made, such a reply is unreadable.
        words: It is words to somebody: those before the limit are kept too, as of any answer.
    """

    kept_cut: ClassVar[bool] = False
    words: ClassVar[bool] = False
    model_config = ConfigDict(frozen=True, extra="ignore", coerce_numbers_to_str=True)

    @classmethod
    def keeps(cls, cut: Mapping[str, Any]) -> bool:
        """Whether this part of a cut reply is of use; only asked where `kept_cut`."""
        return bool(cut)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled(Generic[F]):
    """What came of a form.

    Attributes:
        value: The form, or None where no reply could be read.
        usage: What the calls that gave a reply took.
        asks: Times the model was asked: 1 or 2.
        reply: The last reply as it came, for a system that makes do with one that cannot be read.
        error: Why the last reply could not be read; empty where it could.
        cut: The value is what a reply said in full before its limit of tokens.
    """

    value: F | None
    usage: tuple[Usage, ...]
    asks: int
    reply: str = ""
    error: str = ""
    cut: bool = False


async def fill_form(chat: ChatModel, request: ChatRequest, form: type[F]) -> Filled[F]:
    """Ask for a form; a reply that cannot be read is asked for once more.

    Args:
        chat: The model.
        request: The call, its prompt showing the form in words; its schema is put in here.
        form: The form.

    Raises:
        ModelError: The call failed in another way than by an empty or unreadable reply.
    """
    first = replace(request, json_schema=strict_schema(form))
    usage: list[Usage] = []
    said = text = ""
    cut = False
    for asks, each in enumerate((first, replace(first, prompt=first.prompt + AGAIN)), 1):
        try:
            reply = await chat.complete(each)
            usage.append(reply.usage)
            text, cut = reply.text, False
            try:
                value = read_form(text, form)
            except ModelFormatError:
                if not (form.kept_cut and reply.finish_reason == "length"):
                    raise
                value, cut = read_cut_form(text, form), True
        except ModelFormatError as error:
            said = str(error)
        else:
            return Filled(value=value, usage=tuple(usage), asks=asks, reply=text, cut=cut)
    return Filled(value=None, usage=tuple(usage), asks=2, reply=text, error=said)


def read_form(text: str, form: type[F]) -> F:
    """The first JSON object in a reply that fits a form, whatever stands around it.

    Raises:
        ModelFormatError: None does.
    """
    said = "there is no JSON object in it"
    for value in _objects(text):
        try:
            return form.model_validate(value)
        except ValidationError as error:
            first = error.errors()[0]
            said = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    raise ModelFormatError(f"a reply is no {form.__name__}: {said}")


def read_cut_form(text: str, form: type[F]) -> F:
    """What a reply that was cut off had said in full: whole fields, whole entries of lists.

    Raises:
        ModelFormatError: A field that the form cannot do without is not among it, or is empty.
    """
    brace = text.find("{")
    if brace < 0:
        raise ModelFormatError(f"a reply is no {form.__name__}: there is no JSON object in it")
    try:
        if form.words:
            value = from_json(text[brace:], allow_partial="trailing-strings")
        else:
            value = from_json(_whole_part(text[brace:]), allow_partial=True)
        needed = [name for name, each in form.model_fields.items() if each.is_required()]
        if missing := [name for name in needed if not value.get(name)]:
            raise ModelFormatError(f"a reply is no {form.__name__}: cut before {missing[0]}")
        if not form.keeps(value):
            raise ModelFormatError(f"a reply is no {form.__name__}: it was cut")
        return form.model_validate(value)
    except ValueError as error:  # what is no JSON, and what does not fit
        raise ModelFormatError(f"a reply is no {form.__name__}: it was cut") from error


def strict_schema(form: type[Form]) -> dict[str, Any]:
    """A form's JSON schema as servers want it: all properties required, no others allowed."""
    schema: dict[str, Any] = _strict(form.model_json_schema())
    return schema


def _strict(part: Any) -> Any:  # noqa: ANN401
    if isinstance(part, list):
        return [_strict(each) for each in part]
    if not isinstance(part, dict):
        return part
    kept = {key: _strict(each) for key, each in part.items() if key not in {"title", "default"}}
    if isinstance(part.get("properties"), dict):
        properties = {name: _strict(each) for name, each in part["properties"].items()}
        kept |= {
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
    return kept


_MARKS = re.compile(r'"(?:[^"\\]|\\.)*\\?(?:"|\Z)|[\[\]{},]', re.DOTALL)
"""Strings, the last of them perhaps without its end, and what stands between values."""


def _whole_part(text: str) -> str:
    """A cut object up to where its last whole field, or entry of a field's list, ends.

    An entry that is itself an object counts once it is closed, and a number once another value
    follows: until then more digits may.
    """
    closers: list[str] = []
    end = 1
    for mark in _MARKS.finditer(text):
        kind = mark.group()
        if kind in "[{":
            closers.append(kind)
        elif kind in "]}" and closers:
            closers.pop()
        if not closers:
            return text[: mark.end()]
        if kind in ",]}" and "{" not in closers[1:]:
            end = mark.start() if kind == "," else mark.end()
    return text[:end]


def _objects(text: str) -> Iterator[Any]:
    """JSON objects in a text, an outer one before those inside it."""
    decoder = json.JSONDecoder()
    for brace in re.finditer(r"\{", text):
        try:
            value, _ = decoder.raw_decode(text, brace.start())
        except (json.JSONDecodeError, RecursionError):
            continue
        yield value
