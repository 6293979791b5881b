"""The demo: a server over a fresh folder, fed with the samples through its own HTTP API."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from gateway.bootstrap.identity import local_key
from gateway.cli.metadata import media_type_of
from gateway.cli.options import notes, out
from gateway.cli.waiting import release, wait_for
from gateway.client import GatewayClient, UploadedFile
from gateway.errors import GatewayError
from gateway.processes.readyfile import write_ready_file
from gateway.processes.web import run
from gateway.samples import SampleDocument, Samples, load_samples
from gateway.settings import Settings

_TOKEN_TTL_S = 7 * 86_400
_IMPORT_TTL_S = 3600
#: what it takes to import the samples
IMPORT_SCOPES = ("ingest", "release")


class DemoFailed(GatewayError):
    code = "demo_failed"
    title = "The sample knowledge bases could not be imported"


def run_demo(settings: Settings, ready_file: Path | None) -> None:
    """Serves until stopped. Raises DemoFailed when the samples can't be imported."""
    if "log_level" not in settings.model_fields_set:
        settings = settings.model_copy(update={"log_level": "warning"})
    failures: list[GatewayError] = []

    def ready(url: str, stop: Callable[[], bool]) -> None:
        threading.Thread(target=fill, args=(url, stop), name="demo", daemon=True).start()

    def fill(url: str, stop: Callable[[], bool]) -> None:
        try:
            _fill(settings, load_samples(), url, ready_file)
        except GatewayError as error:
            if stop():  # else somebody has ended the demo in the middle of it
                failures.append(error)

    run(settings, ready)
    if failures:
        raise DemoFailed(f"{failures[0].code}: {failures[0].detail}") from failures[0]


def _fill(settings: Settings, samples: Samples, url: str, ready_file: Path | None) -> None:
    key = local_key(settings)

    def sign(tenant: str, subject: str, groups: Iterable[str], scopes: Iterable[str], ttl_s: int) -> str:
        return key.sign(
            tenant=tenant,
            subject=subject,
            groups=list(groups),
            scopes=list(scopes),
            ttl_s=ttl_s,
            audience=settings.token_audience,
        )

    bases = import_samples(
        samples, url, lambda tenant: sign(tenant, "demo", (), IMPORT_SCOPES, _IMPORT_TTL_S)
    )
    tokens = {
        name: sign(user.tenant, user.subject, user.groups, ("ask",), _TOKEN_TTL_S)
        for name, user in samples.users.items()
    }
    if ready_file is not None:
        content: dict[str, object] = {
            "base_url": url,
            "data_dir": str(settings.data_dir.resolve()),
            "tokens": tokens,
            "knowledge_bases": bases,
        }
        write_ready_file(ready_file, content)
    _show(samples, url, tokens)


def import_samples(samples: Samples, url: str, token_of: Callable[[str], str]) -> dict[str, list[str]]:
    """Imports and releases every sample document through the server at ``url``.

    ``token_of`` gives a token with ``IMPORT_SCOPES`` for a tenant. Returns the knowledge bases by tenant.
    Raises DemoFailed, and what the client raises.
    """
    bases: dict[str, list[str]] = defaultdict(list)
    for tenant, knowledge_base in sorted({(d.tenant, d.knowledge_base) for d in samples.documents}):
        documents = [d for d in samples.documents if (d.tenant, d.knowledge_base) == (tenant, knowledge_base)]
        notes.print(f"Importing {len(documents)} documents into {tenant}/{knowledge_base} …", markup=False)
        with GatewayClient(url, token_of(tenant)) as gateway:
            _import(gateway, knowledge_base, documents)
        bases[tenant].append(knowledge_base)
    return dict(bases)


def _import(gateway: GatewayClient, knowledge_base: str, documents: Iterable[SampleDocument]) -> None:
    alike: dict[str, list[SampleDocument]] = defaultdict(list)
    for document in documents:
        alike[str(_fields(document))].append(document)
    accepted = [
        gateway.upload([_file(document) for document in group], _fields(group[0])) for group in alike.values()
    ]
    for upload in accepted:
        task = wait_for(gateway, upload["task_id"])
        if task["state"] != "SUCCEEDED":
            raise DemoFailed(f"{task['error']}")
    release(gateway, knowledge_base)


def _file(document: SampleDocument) -> UploadedFile:
    return UploadedFile(document.source, document.read(), media_type_of(document.source))


def _fields(document: SampleDocument) -> dict[str, str | list[str]]:
    fields: dict[str, str | list[str]] = {
        "knowledge_base": document.knowledge_base,
        "allow": list(document.allow),
        "deny": list(document.deny),
        "category": document.category,
        "sensitivity": str(document.sensitivity),
        "author": document.author,
        "approval": document.approval,
    }
    if document.valid_from is not None:
        fields["valid_from"] = document.valid_from.isoformat()
    if document.valid_until is not None:
        fields["valid_until"] = document.valid_until.isoformat()
    return fields


def _show(samples: Samples, url: str, tokens: dict[str, str]) -> None:
    out.print("\nThe demo is ready. Each token may ask, and sees what its owner may see:\n")
    for name, token in tokens.items():
        user = samples.users[name]
        out.print(f"{name} ({user.tenant}: {', '.join(user.groups)})\n{token}\n", markup=False)
    first = next(iter(tokens.values()))
    question = '{"question": "What does ERR_TIMEOUT mean?"}'
    out.print("Ask from a shell:\n")
    out.print(
        f"curl -N {url}/v1/answers -H 'Authorization: Bearer {first}' "
        f"-H 'Content-Type: application/json' -d '{question}'\n",
        markup=False,
    )
    out.print(f"Or in a browser: {url}/#token={first}\n", markup=False)
    notes.print("Ctrl-C ends the demo and deletes its data.")
