"""A request in OpenAI's chat format, and what its replies have in common."""

import base64
import io
import json
from collections.abc import Mapping
from typing import Any, Literal

from PIL import Image, UnidentifiedImageError

from vmem.errors import ImageError
from vmem.ports import ChatRequest

_FINISH: dict[str, Literal["stop", "length"]] = {
    "stop": "stop",
    "tool_calls": "stop",
    "length": "length",
}


def chat_body(request: ChatRequest, model: str) -> dict[str, Any]:
    """The body of a chat completion: one user message, pictures as data URLs before the prompt.

    Raises:
        ImageError: A picture is of no known format.
    """
    content: str | list[dict[str, Any]] = request.prompt
    if request.images:
        content = [_image_part(data) for data in request.images]
        content.append({"type": "text", "text": request.prompt})
    return {
        "model": model,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
    }


def response_format(json_schema: dict[str, Any]) -> dict[str, Any]:
    """The field that asks for JSON of a schema."""
    schema = {"name": "reply", "strict": True, "schema": json_schema}
    return {"type": "json_schema", "json_schema": schema}


def tool_choice(json_schema: dict[str, Any]) -> dict[str, Any]:
    """The fields that ask for a native call of one of a schema's tools.

    Args:
        json_schema: `anyOf` objects, one for each tool: its name alone is what `tool` may be, and
            it takes the other properties.
    """
    return {
        "tools": [_tool(each) for each in json_schema["anyOf"]],
        "tool_choice": "required",
        "parallel_tool_calls": False,
    }


def _tool(call: dict[str, Any]) -> dict[str, Any]:
    properties = dict(call["properties"])
    (name,) = properties.pop("tool")["enum"]
    takes = {**call, "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "strict": True, "parameters": takes}}


def called_tool(message: Mapping[Any, Any]) -> str | None:
    """The first native call of a reply's message, as JSON with the tool's name under `tool`.

    Arguments that are no JSON object are left as they came, to be read as any other reply.
    """
    match message.get("tool_calls"):
        case [{"function": {"name": str(name), "arguments": str(arguments)}}, *_]:
            pass
        case _:
            return None
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        values = None
    return json.dumps({"tool": name, **values}) if isinstance(values, dict) else arguments


def finish_reason(sent: str | None) -> Literal["stop", "length", "other"]:
    """Why a reply ended, of those reasons that matter here."""
    return _FINISH.get(sent or "", "other")


def _image_part(data: bytes) -> dict[str, Any]:
    try:
        with Image.open(io.BytesIO(data)) as picture:
            mime = picture.get_format_mimetype()
    except UnidentifiedImageError as error:
        raise ImageError("a picture sent to the model is of no known image format") from error
    url = f"data:{mime};base64,{base64.b64encode(data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}
