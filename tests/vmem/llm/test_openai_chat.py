import asyncio
import base64
import email.utils
import io
import json
import pickle
import time
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from PIL import Image
from pydantic import SecretStr

from vmem.config import ModelSettings
from vmem.errors import (
    ConfigError,
    ImageError,
    ModelError,
    ModelFormatError,
    ModelUnavailableError,
)
from vmem.llm.openai_chat import OpenAIChat
from vmem.ports import ChatReply, ChatRequest
from vmem.types import Usage

KEY = "sk-very-secret"
JSON = {"content-type": "application/json"}
SCHEMA = {
    "type": "object",
    "properties": {"keywords": {"type": "array", "items": {"type": "string"}}},
    "required": ["keywords"],
    "additionalProperties": False,
}
Reply = httpx2.Response | Exception
Script = list[Reply] | Callable[[httpx2.Request], Reply]


class Server:
    """A scripted server, and the client that talks to it without waiting."""

    def __init__(self, script: Script, **settings: Any) -> None:
        self.script = script
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[httpx2.Headers] = []
        self.pauses_s: list[float] = []
        values = {
            "provider": "openai",
            "base_url": "https://user:pass@models.example:8443/v1",
            "model": "m7",
            "api_key": SecretStr(KEY),
            **settings,
        }
        self.chat = OpenAIChat(
            ModelSettings(**values),
            http_client=httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer)),
            sleep=self._pause,
        )

    def ask(self, *requests: ChatRequest) -> list[ChatReply]:
        async def run() -> list[ChatReply]:
            try:
                return [await self.chat.complete(request) for request in requests]
            finally:
                await self.chat.close()

        return asyncio.run(run())

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.bodies.append(json.loads(request.content))
        self.headers.append(request.headers)
        script, number = self.script, len(self.bodies) - 1
        reply = script(request) if callable(script) else script[number]
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def _pause(self, seconds: float) -> None:
        self.pauses_s.append(seconds)


def completion(text: str | None = "Rome", finish: Any = "stop", **extra: Any) -> httpx2.Response:
    choice = {
        "index": 0,
        "finish_reason": finish,
        "message": {"role": "assistant", "content": text},
    }
    body = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m7",
        "choices": [choice],
        "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
        **extra,
    }
    return httpx2.Response(200, json=body)


def refusal(status: int, message: str = "no", **headers: str) -> httpx2.Response:
    error = {"message": message, "type": "bad", "code": None}
    return httpx2.Response(status, json={"error": error}, headers=headers)


def request(**values: Any) -> ChatRequest:
    return ChatRequest(**{"role": "answer", "prompt": "Where?", **values})


def picture(kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(buffer, kind)
    return buffer.getvalue()


def test_a_call_is_sent_and_read() -> None:
    server = Server([completion()], base_url="http://models.example/v1")
    assert server.ask(request(max_tokens=9, temperature=0.5)) == [
        ChatReply(
            text="Rome",
            usage=Usage(role="answer", prompt_tokens=11, completion_tokens=3),
            finish_reason="stop",
        )
    ]
    assert server.bodies == [
        {
            "model": "m7",
            "messages": [{"role": "user", "content": "Where?"}],
            "max_tokens": 9,
            "temperature": 0.5,
        }
    ]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_json_under_another_name_is_read() -> None:
    plain = httpx2.Response(200, text=completion().text)
    assert not plain.headers["content-type"].endswith("json")
    assert Server([plain]).ask(request())[0].text == "Rome"


@pytest.mark.parametrize(
    ("sent", "read"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "other"), (["stop"], "other")],
)
def test_the_finish_reason_is_mapped(sent: Any, read: str) -> None:
    assert Server([completion(finish=sent)]).ask(request())[0].finish_reason == read


@pytest.mark.parametrize(
    "usage", [None, "many", [1], {}, {"prompt_tokens": "11", "completion_tokens": 2**70}]
)
def test_a_server_that_counts_nothing_leaves_the_usage_at_zero(usage: Any) -> None:
    assert Server([completion(usage=usage)]).ask(request())[0].usage == Usage(role="answer")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_pictures_travel_before_the_prompt_as_data_urls(kind: str) -> None:
    data = picture(kind)
    server = Server([completion()], sees_images=True)
    server.ask(request(images=(data, data)))
    url = f"data:image/{kind.lower()};base64,{base64.b64encode(data).decode()}"
    image = {"type": "image_url", "image_url": {"url": url}}
    content = server.bodies[0]["messages"][0]["content"]
    assert content == [image, image, {"type": "text", "text": "Where?"}]


def test_what_is_no_picture_is_not_sent() -> None:
    server = Server([], sees_images=True)
    with pytest.raises(ImageError, match="no known image format"):
        server.ask(request(images=(b"plain text",)))
    assert not server.bodies


def test_a_blind_model_gets_no_picture() -> None:
    server = Server([])
    with pytest.raises(ModelError, match=r"m7 at models\.example:8443 cannot see images"):
        server.ask(request(images=(picture("PNG"),)))
    assert not server.bodies


@pytest.mark.parametrize(
    "failure",
    [
        refusal(429),
        refusal(408),
        refusal(500),
        refusal(503),
        httpx2.ConnectError("refused"),
        httpx2.ReadTimeout("late"),
    ],
    ids=repr,
)
def test_what_may_pass_is_tried_again(failure: Reply) -> None:
    server = Server([failure, failure, completion()])
    assert server.ask(request())[0].text == "Rome"
    assert len(server.bodies) == 3
    assert 0.5 <= server.pauses_s[0] <= 0.5 + 1
    assert 1.0 <= server.pauses_s[1] <= 1.0 + 1


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (refusal(503), "keeps refusing (HTTP 503)"),
        (refusal(429), "keeps refusing (HTTP 429)"),
        (httpx2.ConnectError("refused"), "cannot be reached"),
        (httpx2.ReadTimeout("late"), "gave no reply within 7 s"),
    ],
    ids=repr,
)
def test_after_the_last_try_the_model_is_unavailable(failure: Reply, words: str) -> None:
    server = Server(lambda _: failure, attempts=3, timeout_s=7)
    with pytest.raises(ModelUnavailableError) as caught:
        server.ask(request())
    assert (len(server.bodies), len(server.pauses_s)) == (3, 2)
    assert str(caught.value).startswith("model m7 at models.example:8443 " + words)
    assert not {KEY, "pass"} & set(str(caught.value).replace("@", " ").split())
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_pause_that_the_server_asks_for_is_kept() -> None:
    moment = email.utils.formatdate(time.time() + 60, usegmt=True)
    server = Server(
        [
            refusal(429, **{"retry-after": "17"}),
            refusal(503, **{"retry-after": moment}),
            refusal(503, **{"retry-after": "soon"}),
            completion(),
        ]
    )
    server.ask(request())
    assert server.pauses_s[0] == 17
    assert 50 < server.pauses_s[1] <= 60
    assert 2 <= server.pauses_s[2] <= 2 + 1


def test_a_pause_of_hours_is_not_waited_for() -> None:
    server = Server([refusal(429, **{"retry-after": "7200"})])
    with pytest.raises(ModelUnavailableError, match="HTTP 429"):
        server.ask(request())
    assert (len(server.bodies), server.pauses_s) == (1, [])


@pytest.mark.parametrize(
    ("status", "message", "words"),
    [
        (400, "bad field\nstack trace", "rejects the request (HTTP 400): bad field"),
        (
            401,
            f"wrong key {KEY}",
            "rejects the key (HTTP 401): set VMEM_LLM__API_KEY, or the variable that a plan names"
            " for it",
        ),
        (404, "no such model", "is not known there: check llm.model, llm.base_url"),
        (422, f"{KEY} is odd", "rejects the request (HTTP 422): *** is odd"),
    ],
)
def test_a_rejected_request_is_one_sentence_and_one_call(
    status: int, message: str, words: str
) -> None:
    server = Server([refusal(status, message)])
    with pytest.raises(ModelError) as caught:
        server.ask(request())
    assert str(caught.value) == f"model m7 at models.example:8443 {words}"
    assert not isinstance(caught.value, ModelUnavailableError)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "This model's maximum context length is 4096 tokens"),
        (400, "The decoder prompt (length 9) is longer than the maximum model length of 8."),
        (500, "maximum context length is 4096 tokens"),
        (413, "too large"),
    ],
)
def test_a_prompt_over_the_window_names_the_mend(status: int, message: str) -> None:
    server = Server(lambda _: refusal(status, message))
    with pytest.raises(ModelError, match=r"too long for model m7 .*: lower answer.context_tokens"):
        server.ask(request(json_schema=SCHEMA))
    assert len(server.bodies) == 1


def test_a_schema_is_asked_for_where_it_is_wanted() -> None:
    server = Server([completion(), completion()])
    server.ask(request(json_schema=SCHEMA), request())
    assert server.bodies[0]["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "reply", "strict": True, "schema": SCHEMA},
    }
    assert "response_format" not in server.bodies[1]


def test_a_server_without_schemas_is_asked_plainly_and_remembered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def script(sent: httpx2.Request) -> httpx2.Response:
        return refusal(400, "unknown field") if b"response_format" in sent.content else completion()

    server = Server(script)
    replies = server.ask(request(json_schema=SCHEMA), request(json_schema=SCHEMA))
    assert [reply.text for reply in replies] == ["Rome", "Rome"]
    assert ["response_format" in body for body in server.bodies] == [True, False, False]
    assert [
        record.getMessage() for record in caplog.records if record.name == "vmem.llm.openai_chat"
    ] == ["model m7 at models.example:8443 takes no JSON schema: it is asked without"]


def test_a_request_that_is_wrong_either_way_does_not_cost_the_schema() -> None:
    server = Server([refusal(400), refusal(400, "wrong"), completion()])
    with pytest.raises(ModelError, match="wrong"):
        asyncio.run(server.chat.complete(request(json_schema=SCHEMA)))
    server.ask(request(json_schema=SCHEMA))
    assert ["response_format" in body for body in server.bodies] == [True, False, True]


def call_of(tool: str, **takes: Any) -> dict[str, Any]:
    properties = {"tool": {"type": "string", "enum": [tool]}, **takes}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


CALL = {"anyOf": [call_of("search", text={"type": "string"}), call_of("done")]}


def tool_call(name: Any, arguments: Any) -> httpx2.Response:
    call = {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return completion(choices=[{"index": 0, "finish_reason": "tool_calls", "message": message}])


def test_a_tool_is_called_natively_and_read_as_the_same_json() -> None:
    server = Server([tool_call("search", '{"text": "tent"}'), completion()])
    reply, _ = server.ask(request(json_schema=CALL, calls_tool=True), request(json_schema=CALL))
    assert (json.loads(reply.text), reply.finish_reason) == (
        {"tool": "search", "text": "tent"},
        "stop",
    )
    empty = {"type": "object", "additionalProperties": False}
    search = {**empty, "properties": {"text": {"type": "string"}}, "required": ["text"]}
    done = {**empty, "properties": {}, "required": []}
    assert [each["function"] for each in server.bodies[0]["tools"]] == [
        {"name": "search", "strict": True, "parameters": search},
        {"name": "done", "strict": True, "parameters": done},
    ]
    assert server.bodies[0]["tool_choice"] == "required"
    assert "response_format" not in server.bodies[0]
    assert "tools" not in server.bodies[1]


@pytest.mark.parametrize(
    "arguments", ['{"text": "te', "[1]", '{"a":' * 100_000], ids=["cut", "list", "deep"]
)
def test_arguments_that_are_no_object_are_read_like_any_other_reply(arguments: str) -> None:
    (reply,) = Server([tool_call("search", arguments)]).ask(
        request(json_schema=CALL, calls_tool=True)
    )
    assert reply.text == arguments


def test_a_server_that_rejects_tools_is_asked_for_the_schema() -> None:
    def script(sent: httpx2.Request) -> httpx2.Response:
        return refusal(400, "no tools") if b'"tools"' in sent.content else completion()

    server = Server(script)
    server.ask(*[request(json_schema=CALL, calls_tool=True)] * 2)
    assert [("tools" in body, "response_format" in body) for body in server.bodies] == [
        (True, False),
        (False, True),
        (False, True),
    ]


def test_a_server_that_passes_over_tools_is_asked_for_the_schema_from_then_on() -> None:
    server = Server([completion('{"tool": "done"}'), completion()])
    first, _ = server.ask(*[request(json_schema=CALL, calls_tool=True)] * 2)
    assert first.text == '{"tool": "done"}'
    assert [("tools" in body, "response_format" in body) for body in server.bodies] == [
        (True, False),
        (False, True),
    ]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (completion(""), "gave an empty reply to the answer call (finish reason stop)"),
        (completion(" \n"), "gave an empty reply to the answer call (finish reason stop)"),
        (completion(None, "length"), "(finish reason length)"),
        (completion(choices=[]), "answered with no chat completion"),
        (completion(choices=None), "answered with no chat completion"),
        (completion(choices=[None]), "answered with no chat completion"),
        (completion(choices={"a": 1}), "answered with no chat completion"),
        (completion(choices="Rome"), "answered with no chat completion"),
        (completion(choices=[{"message": "Rome"}]), "answered with no chat completion"),
        (completion(choices=[{"message": {"content": ["Rome"]}}]), "answered with no chat comp"),
        (completion(choices=[{"message": {"content": 7}}]), "answered with no chat completion"),
        (completion(choices=[{"message": {"refusal": "no"}}]), "gave an empty reply"),
        (httpx2.Response(200, html="<html>"), "llm.base_url must end in /v1"),
        (httpx2.Response(200, json=[]), "answered with no chat completion"),
        (httpx2.Response(200, content=b"{", headers=JSON), "answered with broken JSON"),
        (httpx2.Response(200, content=b"\xff", headers=JSON), "answered with broken JSON"),
        (httpx2.Response(200, content=b"[" * 99_999, headers=JSON), "answered with broken JSON"),
        (httpx2.Response(200, content=b"9" * 5_000, headers=JSON), "answered with broken JSON"),
    ],
)
def test_a_reply_of_no_use_is_an_error(reply: Reply, words: str) -> None:
    server = Server([reply])
    with pytest.raises(ModelFormatError) as caught:
        server.ask(request())
    assert words in str(caught.value)
    assert len(server.bodies) == 1


def test_calls_at_once_keep_their_own_tries() -> None:
    seen: dict[str, int] = {}

    def script(sent: httpx2.Request) -> httpx2.Response:
        prompt = json.loads(sent.content)["messages"][0]["content"]
        seen[prompt] = seen.get(prompt, 0) + 1
        return refusal(503) if seen[prompt] < int(prompt) else completion(prompt)

    server = Server(script, attempts=4)

    async def run() -> list[str]:
        calls = [server.chat.complete(request(prompt=str(n))) for n in (4, 1, 3, 2)]
        return [reply.text for reply in await asyncio.gather(*calls)]

    assert asyncio.run(run()) == ["4", "1", "3", "2"]
    assert seen == {"4": 4, "1": 1, "3": 3, "2": 2}


def test_a_closed_client_says_so() -> None:
    server = Server([])
    asyncio.run(server.chat.close())
    with pytest.raises(ModelUnavailableError, match="was closed"):
        asyncio.run(server.chat.complete(request()))


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("abc", 1), ("abcd", 2), ("北京", 2), ("é" * 30, 20)]
)
def test_tokens_are_estimated_from_bytes(text: str, count: int) -> None:
    assert Server([]).chat.count_tokens(text) == count


@pytest.mark.parametrize(
    "settings", [{"base_url": None}, {"model": None}, {"base_url": "localhost:8000/v1"}]
)
def test_a_server_without_address_or_model_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"llm\.base_url"):
        Server([], **settings)
