"""Pictures and voice messages of rounds (sections 3.2 and 3.4): into the store, and out of it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from vmem.audio import read_audio
from vmem.errors import ImageError
from vmem.stores.catalogue import Catalogue
from vmem.stores.images import ImageStore, stored_digest
from vmem.stores.statements import media_digests
from vmem.types import Image, Round, Turn

Read = Callable[[str], bytes]
Transcribe = Callable[[str], str]


def keep_media(round_: Round, store: ImageStore, read_image: Read, transcribe: Transcribe) -> Round:
    """The round with its pictures and voice messages in the store, voice transcribed.

    Args:
        round_: The round.
        store: Where they go.
        read_image: A picture's bytes by its URI, checked.
        transcribe: The words of a voice message by its URI, where it comes without them.

    Raises:
        ImageError, AudioError: One of them cannot be used.
        EncoderError: A voice message has no transcript and the audio extra is missing.
    """
    return replace(
        round_,
        turns=tuple(_keep_turn(turn, store, read_image, transcribe) for turn in round_.turns),
    )


def drop_media(rounds: Sequence[Round], store: ImageStore, catalogue: Catalogue) -> None:
    """Remove the pictures and voice messages of rounds that no memory of any bank holds.

    Raises:
        StoreError: The store cannot be written.
    """
    digests = {digest for round_ in rounds for digest in media_digests(round_)}
    for digest in sorted(digests - catalogue.image_digests(digests)) if digests else ():
        store.delete(digest)


def reader(store: ImageStore, read_image: Read) -> Read:
    """Reads pictures by URI; stored ones by their digest, where the store has moved since."""

    def read(uri: str) -> bytes:
        try:
            return read_image(uri)
        except ImageError:
            digest = stored_digest(uri)
            if digest is None or not store.holds(digest):
                raise
            return store.get(digest)

    return read


def _keep_turn(turn: Turn, store: ImageStore, read_image: Read, transcribe: Transcribe) -> Turn:
    images = tuple(_keep_image(image, store, read_image) for image in turn.images)
    if turn.audio is None:
        return replace(turn, images=images)
    transcript = turn.transcript or transcribe(turn.audio)
    audio = store.put_audio(read_audio(turn.audio), turn.audio)
    return replace(turn, images=images, audio=audio, transcript=transcript)


def _keep_image(image: Image, store: ImageStore, read_image: Read) -> Image:
    if image.uri is None or image.digest:
        return image
    digest, uri = store.put(read_image(image.uri), image.uri)
    return replace(image, digest=digest, uri=uri)
