"""Every error that vmem raises on purpose.

Each takes one message, a sentence that names the thing at fault and the mend, and so survives
pickling between processes::

    VmemError
    ├── InputError            what the caller gave is wrong
    │   ├── DataError         a data file, line or round cannot be used
    │   ├── ImageError        an image is missing, damaged, too large or outside its folder
    │   ├── AudioError        a voice message is missing or cannot be transcribed
    │   └── QueryError        a query is empty or too long
    ├── ConfigError           a setting is unknown or its value does not fit
    ├── StoreError            the store cannot do what was asked
    │   ├── UnknownMemoryError
    │   ├── UnknownRoundError
    │   ├── RoundConflictError    a round id is taken by a round of other content
    │   ├── EncoderMismatchError  the store was built with another encoder
    │   ├── StoreBusyError        another process holds the store
    │   └── VectorError           a vector is not finite, zero or of the wrong width
    ├── EncoderError          an encoder cannot be loaded or run
    ├── BudgetError           a run may spend no more, or what it spends cannot be known
    └── ModelError            a language model failed
        ├── ModelUnavailableError the server cannot be reached or keeps refusing
        │   └── ModelTimeoutError     it gave no reply in time
        ├── ModelUnusableError    no call can succeed: the key, the model's name, a server gone
        └── ModelFormatError      the reply is not of the form asked for
"""


class VmemError(Exception):
    """Root of the tree; catch it to catch all of vmem's own errors."""


class InputError(VmemError):
    """What the caller gave is wrong."""


class DataError(InputError):
    """A data file, a line in it or a round cannot be used."""


class ImageError(InputError):
    """An image is missing, damaged, too large or outside its folder."""


class AudioError(InputError):
    """A voice message is missing or cannot be transcribed."""


class QueryError(InputError):
    """A query is empty or too long."""


class ConfigError(VmemError):
    """A setting is unknown or its value does not fit."""


class StoreError(VmemError):
    """The store cannot do what was asked."""


class UnknownMemoryError(StoreError):
    """No memory has this name."""


class UnknownRoundError(StoreError):
    """The memory has no round of this id."""


class RoundConflictError(StoreError):
    """A round id is taken by a round of other content."""


class EncoderMismatchError(StoreError):
    """The store was built with another encoder."""


class StoreBusyError(StoreError):
    """Another process holds the store."""


class VectorError(StoreError):
    """A vector is not finite, is zero or has the wrong width."""


class EncoderError(VmemError):
    """An encoder cannot be loaded or run."""


class BudgetError(VmemError):
    """A run may spend no more, or what it spends cannot be known.

    No ModelError, so that nothing that goes on without a model takes it for a failed call.
    """


class ModelError(VmemError):
    """A language model failed."""


class ModelUnavailableError(ModelError):
    """The model's server cannot be reached or keeps refusing."""


class ModelTimeoutError(ModelUnavailableError):
    """The model gave no reply in time."""


class ModelUnusableError(ModelError):
    """No call of the model can succeed until somebody mends what the sentence names."""


class ModelFormatError(ModelError):
    """The model's reply is not of the form asked for."""
