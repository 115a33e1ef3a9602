"""The application in this process: Serve's local testing mode, everything else the real thing."""

from collections.abc import Callable, Iterator

import pytest
from fastapi import FastAPI


@pytest.fixture
def local_app() -> Iterator[Callable[..., FastAPI]]:
    """Makes the HTTP app of some settings, its replicas plain objects of this process."""
    from ray import serve as ray_serve

    from serve.backbone import Backbone
    from serve.cluster import Cluster
    from serve.http import make_app
    from serve.retriever import Retriever
    from serve.settings import ServeSettings
    from serve.writer import Writer
    from vmem.bank import database_url
    from vmem.stores.keys import KeyStore

    def make(settings: ServeSettings) -> FastAPI:
        memory = settings.memory_settings()
        deployed = [ray_serve.deployment(kind) for kind in (Writer, Retriever, Backbone)]
        writer, retriever, backbone = deployed
        model = backbone.bind(memory) if settings.backbone.kind == "embedded" else None
        handles = [
            ray_serve.run(app, name=name, route_prefix=None, _local_testing_mode=True)
            for name, app in {
                "writer": writer.bind(memory),
                "retriever": retriever.bind(memory, settings.backbone, model),
            }.items()
        ]
        return make_app(Cluster(memory, *handles), KeyStore(database_url(memory)), settings)

    yield make
