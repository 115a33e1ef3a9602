"""Bodies that work as they stand, for the docs page; a test sends each of them."""

from typing import Any

DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFklEQVR42mNkaGBgYGBgYmBgYGBgAAAG"
    "KgCE5A1lCwAAAABJRU5ErkJggg=="
)
"""A green picture of four pixels."""

Examples = dict[str, dict[str, Any]]

CREATE: Examples = {"a memory": {"value": {"id": "trip"}}}
APPEND: Examples = {
    "an exchange": {
        "value": {
            "rounds": [
                {
                    "id": "D1:1",
                    "session": "D1",
                    "time": "2026-03-03T18:20",
                    "user": "Our tent by the lake, we arrived an hour ago.",
                    "assistant": "A lovely green tent!",
                    "images": [{"base64": DOT, "caption": "a green tent"}],
                }
            ]
        }
    },
    "turns of two people": {
        "value": {
            "rounds": [
                {
                    "id": "D2:1",
                    "session": "D2",
                    "time": "2026-03-09",
                    "turns": [
                        {"speaker": "Mara", "text": "The canoe leaks."},
                        {"speaker": "Jon", "text": "I will bring tape on Friday."},
                    ],
                }
            ]
        }
    },
}
APPEND_FORM = {
    "rounds": '[{"id": "D3:1", "user": "The map.", "images": [{"file": "map"}]}]',
    "map": "(a file)",
}
QUESTION_FORM = {
    "query": "Where was this?",
    "options": '{"top_k": 5}',
    "image": "(a file)",
}
SEARCH: Examples = {
    "a question": {"value": {"query": "What colour was the tent?"}},
    "with a picture, explained": {
        "value": {
            "query": "Where was this?",
            "image": {"base64": DOT, "caption": "a tent"},
            "options": {"top_k": 5, "target": "text"},
            "explain": True,
        }
    },
}
ANSWER: Examples = {
    "a question": {"value": {"query": "What colour was the tent?"}},
    "as a stream": {
        "value": {
            "query": "Show me the tent.",
            "options": {"target": "image", "max_tokens": 64},
            "stream": True,
        }
    },
}
STREAM = (
    'event: found\ndata: {"request_id": "...", "citations": [...]}\n\n'
    'event: token\ndata: {"text": "A green"}\n\n'
    'event: done\ndata: {"answer": "A green tent.", "usage": [...]}\n\n'
)
CHAT: Examples = {
    "a question": {
        "value": {
            "model": "vmem",
            "messages": [{"role": "user", "content": "What colour was the tent?"}],
            "memory": "trip",
        }
    },
    "with a picture, remembered": {
        "value": {
            "model": "vmem",
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Where was this?"},
                        {
                            "type": "image_url",
                            "image_url": {"url": f"data:image/png;base64,{DOT}"},
                        },
                    ],
                }
            ],
            "memory": "trip",
            "remember": True,
        }
    },
}
CHAT_STREAM = (
    'data: {"object": "chat.completion.chunk", "choices": [{"delta": {"content": "A"}}]}\n\n'
    "data: [DONE]\n\n"
)
EMBEDDINGS: Examples = {
    "two texts": {
        "value": {
            "model": "vmem-embedding",
            "input": ["a green tent", "a leaking canoe"],
            "encoding_format": "float",
        }
    }
}
ARCHIVE_FORM = {"archive": "(a zip file, as the export gives it)"}
