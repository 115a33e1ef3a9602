"""Language models, each a `ChatModel`: any OpenAI-compatible server, embedded, scripted."""
