"""A request in OpenAI's chat format, and what its replies have in common."""

import base64
import io
from typing import Any, Literal

from PIL import Image, UnidentifiedImageError

from vmem.errors import ImageError
from vmem.ports import ChatRequest

_FINISH: dict[str, Literal["stop", "length"]] = {"stop": "stop", "length": "length"}


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
