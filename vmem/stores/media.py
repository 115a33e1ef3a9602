"""Pictures and voice messages of rounds (sections 3.2 and 3.4): into the store, and out of it."""

from collections.abc import Callable
from dataclasses import replace

from vmem.audio import read_audio
from vmem.errors import ImageError
from vmem.images import image_digest
from vmem.stores.catalogue import Catalogue
from vmem.stores.images import ImageStore, stored_digest
from vmem.types import Image, Round, Turn

Read = Callable[[str], bytes]
Transcribe = Callable[[str], str]
Note = Callable[[str], None]
_TOGETHER = 500


def keep_media(
    round_: Round,
    store: ImageStore,
    read_image: Read,
    transcribe: Transcribe,
    note: Note = lambda _: None,
) -> Round:
    """The round with its pictures and voice messages in the store, voice transcribed.

    Args:
        round_: The round.
        store: Where they go.
        read_image: A picture's bytes by its URI, checked.
        transcribe: The words of a voice message by its URI, where it comes without them.
        note: Told the digest of each before it is written.

    Raises:
        ImageError, AudioError: One of them cannot be used.
        EncoderError: A voice message has no transcript and the audio extra is missing.
    """
    return replace(
        round_,
        turns=tuple(_keep_turn(turn, store, read_image, transcribe, note) for turn in round_.turns),
    )


def drop_loose_media(bank: str, store: ImageStore, catalogue: Catalogue) -> None:
    """Remove the files of what a bank's log holds no more, or does not hold after all.

    What a memory of any bank still holds is kept.

    Raises:
        StoreError: The store cannot be written; what is left goes with the next call.
    """
    loose = catalogue.loose_media(bank)
    for start in range(0, len(loose), _TOGETHER):
        digests = loose[start : start + _TOGETHER]
        for digest in sorted(set(digests) - catalogue.image_digests(digests)):
            store.delete(digest)
        catalogue.forget_loose_media(bank, digests)


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


def _keep_turn(
    turn: Turn, store: ImageStore, read_image: Read, transcribe: Transcribe, note: Note
) -> Turn:
    images = tuple(_keep_image(image, store, read_image, note) for image in turn.images)
    if turn.audio is None:
        return replace(turn, images=images)
    transcript = turn.transcript or transcribe(turn.audio)
    data = read_audio(turn.audio)
    note(image_digest(data))
    audio = store.put_audio(data, turn.audio)
    return replace(turn, images=images, audio=audio, transcript=transcript)


def _keep_image(image: Image, store: ImageStore, read_image: Read, note: Note) -> Image:
    if image.uri is None or image.digest:
        return image
    data = read_image(image.uri)
    note(image_digest(data))
    digest, uri = store.put(data, image.uri)
    return replace(image, digest=digest, uri=uri)
