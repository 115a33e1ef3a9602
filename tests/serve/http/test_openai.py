"""OpenAI's own client, unchanged, against the app on a real socket."""

import asyncio
import base64
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import openai
import pytest
import uvicorn
from fastapi import FastAPI

from vmem.errors import ModelError, StoreError
from vmem.types import Image

pytestmark = pytest.mark.anyio
ASK = [{"role": "user", "content": "What leaks?"}]


@contextmanager
def listening(app: FastAPI) -> Iterator[str]:
    """The app on a free port; its address."""
    config = uvicorn.Config(app, port=0, log_level="error", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)


@pytest.fixture
def llm(served: Any, tent: dict[str, Any], canoe: dict[str, Any]) -> Iterator[Any]:
    """A client, its retries off so that each refusal is seen."""
    with (
        listening(served.app) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key=served.secret, max_retries=0) as client,
    ):
        client.post(
            "/memories/trip/rounds", body={"rounds": [tent, canoe]}, cast_to=dict[str, object]
        )
        yield client


def test_a_chat_is_answered_from_the_memory(llm: openai.OpenAI) -> None:
    reply = llm.chat.completions.create(
        model="vmem", messages=ASK, extra_headers={"x-vmem-memory": "trip"}
    )
    assert reply.choices[0].message.content == "A green tent."
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.completion_tokens == 3
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 3
    assert reply.vmem["citations"][0]["round_id"] == "D2:1"
    assert reply.vmem["route"]["case"] == "text->text"
    assert (reply.vmem["memory"], reply.vmem["round_id"]) == ("trip", None)


def test_a_chat_streams_and_ends_with_its_cost(llm: openai.OpenAI) -> None:
    chunks = list(
        llm.chat.completions.create(
            model="vmem",
            messages=ASK,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"memory": "trip"},
        )
    )
    first, *pieces, last, cost = chunks
    assert first.choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content for chunk in pieces) == "A green tent."
    assert last.choices[0].finish_reason == "stop"
    assert last.vmem["citations"][0]["round_id"] == "D2:1"
    assert (cost.choices, cost.usage.completion_tokens) == ([], 3)
    assert len({chunk.id for chunk in chunks}) == 1


def test_without_the_option_no_chunk_of_cost(llm: openai.OpenAI) -> None:
    chunks = list(
        llm.chat.completions.create(
            model="vmem", messages=ASK, stream=True, extra_body={"memory": "trip"}
        )
    )
    assert all(chunk.usage is None for chunk in chunks)
    assert all(chunk.choices for chunk in chunks)


@pytest.mark.parametrize("stream", [False, True])
def test_an_exchange_is_remembered_with_its_picture(
    llm: openai.OpenAI, served: Any, picture: Callable[..., bytes], stream: bool
) -> None:
    url = f"data:image/png;base64,{base64.b64encode(picture('red')).decode()}"
    content = [
        {"type": "text", "text": "Where was this red kite?"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    reply = llm.chat.completions.create(
        model="vmem",
        messages=[{"role": "user", "content": content}],
        stream=stream,
        extra_body={"memory": "trip", "remember": True, "session": "chat"},
        extra_headers={"x-request-id": f"exchange-{stream}"},
    )
    said = list(reply)[-1].vmem if stream else reply.vmem
    assert said["round_id"] == f"chat-exchange-{stream}"
    assert said["route"]["query_modality"] == "image"
    round_ = served.service.bank.rounds(f"{served.tenant}/trip")[-1]
    assert (round_.id, round_.session) == (said["round_id"], "chat")
    assert [turn.text for turn in round_.turns] == ["Where was this red kite?", "A green tent."]
    (image,) = round_.images
    assert isinstance(image, Image)
    assert served.service.bank.media.get(image.digest) == picture("red")


def test_a_failure_to_remember_is_no_quiet_success(llm: openai.OpenAI, served: Any) -> None:
    served.service.down["append"] = StoreError("disk full on 10.0.0.9")
    body = {"memory": "trip", "remember": True}
    with pytest.raises(openai.InternalServerError) as failed:
        llm.chat.completions.create(model="vmem", messages=ASK, extra_body=body)
    assert failed.value.status_code == 503
    stream = llm.chat.completions.create(model="vmem", messages=ASK, stream=True, extra_body=body)
    with pytest.raises(openai.APIError, match="store cannot be reached"):
        list(stream)


def test_a_backbone_that_fails_half_way_ends_the_stream_with_an_error(
    llm: openai.OpenAI, served: Any
) -> None:
    def fail(request: Any) -> None:
        raise ModelError("gpu-7")

    served.service.script = fail
    stream = llm.chat.completions.create(
        model="vmem", messages=ASK, stream=True, extra_body={"memory": "trip"}
    )
    with pytest.raises(openai.APIError, match="no usable answer"):
        list(stream)
    with pytest.raises(openai.InternalServerError) as failed:
        llm.chat.completions.create(model="vmem", messages=ASK, extra_body={"memory": "trip"})
    assert failed.value.status_code == 502
    assert "gpu-7" not in str(failed.value)


def test_messages_that_are_not_read_are_said(llm: openai.OpenAI) -> None:
    messages = [{"role": "system", "content": "Be brief."}, *ASK]
    reply = llm.chat.completions.create(
        model="vmem", messages=messages, extra_body={"memory": "trip"}
    )
    assert reply.vmem["notes"] == ["1 messages before the question were not read"]


def test_models_and_embeddings_in_both_encodings(llm: openai.OpenAI, served: Any) -> None:
    assert [model.id for model in llm.models.list()] == ["vmem", "vmem-embedding"]
    assert llm.models.retrieve("vmem").owned_by == "vmem"
    texts = ["a green tent", "a leaking canoe"]
    expected_ND = served.service.bank.parts.text_encoder.encode(texts)
    default = llm.embeddings.create(model="vmem-embedding", input=texts)  # asks for base64
    floats = llm.embeddings.create(model="vmem-embedding", input=texts, encoding_format="float")
    for reply in (default, floats):
        vectors_ND = np.array([item.embedding for item in reply.data], dtype=np.float32)
        assert np.array_equal(vectors_ND, expected_ND)
    assert default.usage.prompt_tokens == 6
    one = llm.embeddings.create(model="vmem-embedding", input="a green tent")
    assert len(one.data) == 1


REFUSED = {
    "n": ({"n": 2}, "does not support n"),
    "tools": (
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        "does not support tools",
    ),
    "stop": ({"stop": ["x"]}, "does not support stop"),
    "top_p": ({"top_p": 0.5}, "does not support top_p"),
    "logprobs": ({"logprobs": True}, "does not support logprobs"),
    "json": ({"response_format": {"type": "json_object"}}, "does not support response_format"),
    "penalty": ({"presence_penalty": 1}, "does not support presence_penalty"),
    "tokens": ({"max_tokens": 100_000}, "max_tokens must be from"),
    "unknown": ({"extra_body": {"memory": "trip", "x": 1}}, "x is no field"),
    "no memory": ({"extra_body": {}}, "Name the memory"),
    "bad name": ({"extra_body": {"memory": "a/b"}}, "memory"),
    "assistant last": ({"messages": [{"role": "assistant", "content": "x"}]}, "must be the user"),
    "no messages": ({"messages": []}, "messages"),
    "tool message": (
        {"messages": [{"role": "tool", "tool_call_id": "x", "content": "x"}]},
        "messages.0",
    ),
    "a local file": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "x"},
                        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
                    ],
                }
            ]
        },
        "image_url must be data:",
    ),
    "sound": (
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
        "messages.0",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_honoured_is_refused_in_a_sentence(
    llm: openai.OpenAI, served: Any, name: str
) -> None:
    changes, part = REFUSED[name]
    asked = {"model": "vmem", "messages": ASK, "extra_body": {"memory": "trip"}} | changes
    served.service.calls.clear()
    with pytest.raises(openai.UnprocessableEntityError) as refused:
        llm.chat.completions.create(**asked)
    assert part in refused.value.body["message"]
    assert served.service.calls == []


HARMLESS = {
    "user": "u",
    "seed": 1,
    "n": 1,
    "top_p": 1,
    "temperature": 0.2,
    "max_completion_tokens": 16,
    "presence_penalty": 0,
    "metadata": {"a": "b"},
    "store": False,
    "response_format": {"type": "text"},
    "tool_choice": "none",
}


def test_what_changes_nothing_is_taken(llm: openai.OpenAI) -> None:
    reply = llm.chat.completions.create(
        model="vmem", messages=ASK, extra_body={"memory": "trip"}, **HARMLESS
    )
    assert reply.choices[0].message.content == "A green tent."


def test_errors_are_the_clients_own_classes(llm: openai.OpenAI, served: Any) -> None:
    memory = {"extra_body": {"memory": "trip"}}
    with pytest.raises(openai.NotFoundError) as missing:
        llm.chat.completions.create(model="gpt-4o-mini", messages=ASK, **memory)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        llm.chat.completions.create(model="vmem", messages=ASK, extra_body={"memory": "elsewhere"})
    with pytest.raises(openai.AuthenticationError):
        llm.with_options(api_key="wrong").models.list()
    with pytest.raises(openai.UnprocessableEntityError):
        llm.embeddings.create(model="vmem-embedding", input=[[1, 2, 3]])
    with pytest.raises(openai.UnprocessableEntityError):
        llm.embeddings.create(model="vmem-embedding", input="a", dimensions=7)


async def test_the_asynchronous_client_too(served: Any, canoe: dict[str, Any]) -> None:
    with listening(served.app) as address:
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key=served.secret) as client:
            await client.post(
                "/memories/trip/rounds", body={"rounds": [canoe]}, cast_to=dict[str, object]
            )
            memory = {"extra_body": {"memory": "trip"}}
            whole, stream = await asyncio.gather(
                client.chat.completions.create(model="vmem", messages=ASK, **memory),
                client.chat.completions.create(model="vmem", messages=ASK, stream=True, **memory),
            )
            pieces = [
                chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices
            ]
            embedded = await client.embeddings.create(model="vmem-embedding", input="a")
            models = [model.id async for model in client.models.list()]
    assert whole.choices[0].message.content == "".join(pieces) == "A green tent."
    assert len(embedded.data[0].embedding) == 32
    assert models == ["vmem", "vmem-embedding"]


async def test_an_open_service_takes_the_placeholder_that_clients_insist_on(
    serve_app: Callable[..., Any], canoe: dict[str, Any]
) -> None:
    served = serve_app(http={"open_on_loopback": True})
    with listening(served.app) as address:
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none") as client:
            assert [model.id async for model in client.models.list()]
