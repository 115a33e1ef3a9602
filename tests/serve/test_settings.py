"""Settings of the application: what they refuse, and in which words."""

from pathlib import Path

import pytest
import yaml

from serve.app import _deployment, bind
from serve.backbone import Backbone
from serve.launch import check_access, check_port, free_port
from serve.retriever import Retriever
from serve.settings import load_serve_settings
from serve.writer import Writer
from vmem.config import CONFIGS
from vmem.errors import ConfigError

CONFIGURATIONS = sorted(path.stem for path in (CONFIGS / "serve").glob("*.yaml"))


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_configuration_fits(name: str) -> None:
    assert load_serve_settings(name).name == name


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"htttp": {}}, "there is no setting htttp"),
        ({"http": {"prot": 1}}, "there is no setting http.prot"),
        ({"http": {"port": 0}}, "setting http.port"),
        ({"backbone": {"replica": {"num_gpu": 1}}}, "there is no setting backbone.replica.num_gpu"),
        ({"memory": {"retrieval": {"topk": 3}}}, "there is no setting memory.retrieval.topk"),
        ({"memory": "no-such"}, "no settings named 'no-such'"),
        ({"limits": {"x": 1}, "api": {"y": 2}}, "(and 1 more)"),
    ],
)
def test_unknown_and_wrong_settings_are_refused_with_their_path(
    tmp_path: Path, values: dict[str, object], sentence: str
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(values))
    with pytest.raises(ConfigError, match=r".*") as caught:
        load_serve_settings(file)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_configuration_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"known: .*embedded"):
        load_serve_settings("no-such")


def test_nobody_is_let_in_without_key_from_other_machines() -> None:
    settings = load_serve_settings(
        {"name": "open", "http": {"host": "0.0.0.0", "open_on_loopback": True}}
    )
    with pytest.raises(ConfigError, match="vmem keys create"):
        check_access(settings)
    check_access(load_serve_settings({"name": "keyed", "http": {"host": "0.0.0.0"}}))


def test_a_taken_port_is_found_before_anything_starts() -> None:
    import socket

    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(ConfigError, match=f"port {port} cannot be used"):
            check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)


def test_an_update_starts_successors_first_but_for_the_one_writer() -> None:
    settings = load_serve_settings("embedded")
    starts = {
        kind.__name__: _deployment(kind, replica)._deployment_config.max_surge_percent
        for kind, replica in (
            (Retriever, settings.retriever),
            (Backbone, settings.backbone.replica),
            (Writer, settings.writer),
        )
    }
    assert starts == {"Retriever": 25, "Backbone": 25, "Writer": 0}
    api = bind(settings)._bound_deployment
    assert api._deployment_config.max_surge_percent == 25
    with pytest.raises(ConfigError, match=r"writer\.max_surge_percent"):
        load_serve_settings({"name": "two writers", "writer": {"max_surge_percent": 25}})
