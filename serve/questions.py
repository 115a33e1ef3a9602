"""Questions of a request as the service takes them, within the service's bounds."""

from serve.errors import LimitError
from serve.media import Media
from serve.request_schemas import QueryImage
from serve.service import Options
from serve.settings import LimitSettings
from vmem.errors import QueryError
from vmem.pipeline import check_query
from vmem.types import Image, Query

IMAGE_ID = "attached"
"""What a question's picture is called in contexts and errors."""


async def to_query(
    text: str, image: QueryImage | None, media: Media, limits: LimitSettings
) -> Query:
    """A question with its picture as a `data:` URI.

    Raises:
        LimitError: It is too long.
        QueryError: It is empty.
        ImageError, RequestError: The picture cannot be used.
    """
    if len(text) > limits.query_characters:
        raise LimitError(f"A question has at most {limits.query_characters:,} characters.")
    check_query(Query(text=text))
    if image is None:
        return Query(text=text)
    uri = await media.picture(image, "the question's picture")
    return Query(text=text, image=Image(id=IMAGE_ID, uri=uri, caption=image.caption))


def check_options(options: Options, limits: LimitSettings) -> Options:
    """The options themselves, where they are within bounds.

    Raises:
        QueryError: One is not.
    """
    bounds: tuple[tuple[str, float | None, float, float], ...] = (
        ("top_k", options.top_k, 1, limits.top_k),
        ("window", options.window, 0, limits.window),
        ("max_tokens", options.max_tokens, 1, limits.answer_tokens),
        ("temperature", options.temperature, 0, 2),
    )
    for name, value, low, high in bounds:
        if value is not None and not low <= value <= high:
            raise QueryError(f"options.{name} must be from {low:g} to {high:g}.")
    return options
