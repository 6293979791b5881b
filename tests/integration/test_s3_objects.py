"""A bucket that denies, stalls, breaks off or is missing: clear errors, nothing half done, no secret told."""

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager

import anyio
import pytest

from gateway.adapters.objects import Patience, StoredObjects, open_objects
from gateway.errors import ConfigurationError, NotFound, ObjectStoreUnavailable
from tests.harness.process import eventually
from tests.harness.proxy import Proxy, proxy_to
from tests.harness.s3 import S3Server

PATIENCE_S = 30
#: a silence ends it, nothing else does in time
SHORT = Patience(connect_s=60, read_s=0.3, request_s=60, total_s=60, retries=1)
LARGE = b"x" * (16 * 1024 * 1024)
HEADERS = 'ETag: "e"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\nConnection: close\r\n'
SECRET, SESSION = "the-secret-key", "the-session-token"

Answer = Callable[[str, str], tuple[int, str]]
Call = Callable[[StoredObjects], Coroutine[object, object, object]]

CALLS: dict[str, Call] = {
    "put": lambda objects: objects.put("key", b"new"),
    "get": lambda objects: objects.get("key"),
    "exists": lambda objects: objects.exists("key"),
    "delete": lambda objects: objects.delete("key"),
    "ping": lambda objects: objects.ping(),
}


def set_environment(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=CALLS)
def call(request: pytest.FixtureRequest) -> Call:
    """Each method."""
    return CALLS[request.param]


@pytest.fixture
async def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxy]:
    """A proxy in front of the server, which the environment leads to."""
    async with proxy_to(s3.port) as proxy:
        set_environment(monkeypatch, s3.environment_at(f"http://127.0.0.1:{proxy.port}"))
        yield proxy


@asynccontextmanager
async def answering(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StoredObjects]:
    """A bucket on a server that answers ``answer(method, target)`` = status and body, whoever asks."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if line)
        await reader.readexactly(int(fields.get("content-length", 0)))
        method, target, _ = head.split(" ", 2)
        status, body = answer(method, target)
        body = body.replace("REQUEST", head)
        reply = f"HTTP/1.1 {status} Said\r\nContent-Length: {len(body)}\r\n{HEADERS}\r\n"
        writer.write((reply + ("" if method == "HEAD" else body)).encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    environment = {
        "AWS_ACCESS_KEY_ID": "the-access-key",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": SESSION,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}",
    }
    set_environment(monkeypatch, environment)
    async with server:
        yield open_objects("s3://bucket/prefix", Patience(retries=1))


def denying(status: int) -> Answer:
    """As S3 does, which quotes the whole request."""
    return lambda method, target: (
        status,
        "<Error><Code>AccessDenied</Code><Message>REQUEST</Message></Error>",
    )


@pytest.mark.parametrize("status", [401, 403])
async def test_denied_access_is_said_and_no_secret_is(
    call: Call, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in the message nor in what a log would print of it."""
    async with answering(denying(status), monkeypatch) as objects:
        with anyio.fail_after(PATIENCE_S), pytest.raises(ObjectStoreUnavailable) as caught:
            await call(objects)
    told = "".join(traceback.format_exception(caught.value)) + repr(vars(objects)) + repr(caught.value)
    assert [secret for secret in (SECRET, SESSION) if secret in told] == []
    if call is not CALLS["ping"]:  # which begins with a listing, where obstore has one class for all errors
        assert caught.value.detail == "access to the object store was denied"


async def test_a_delete_that_is_denied_within_a_good_reply_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S3 answers 200 to a deletion of several objects and names those it refused."""
    error = "<Error><Key>prefix/key</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
    body = f"<DeleteResult>{error}</DeleteResult>"
    async with answering(lambda method, target: (200, body), monkeypatch) as objects:
        with pytest.raises(ObjectStoreUnavailable):
            await objects.delete("key")


async def test_a_missing_bucket_is_not_a_missing_object(
    call: Call, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every method says that the store is not there."""
    set_environment(monkeypatch, s3.environment)
    with pytest.raises(ObjectStoreUnavailable):
        await call(open_objects("s3://no-such-bucket"))


async def test_a_silent_server_is_waited_for_within_bounds(call: Call, s3: S3Server, proxy: Proxy) -> None:
    """Then every method fails; once the server speaks again, the same store works."""
    objects = open_objects(s3.fresh_bucket(), SHORT)
    proxy.stall()
    with anyio.fail_after(PATIENCE_S), pytest.raises(ObjectStoreUnavailable):
        await call(objects)
    await proxy.cut()
    proxy.flow()

    async def works() -> bool:
        try:
            await objects.put("key", b"recovered")
            return await objects.get("key") == b"recovered"
        except ObjectStoreUnavailable:  # a busy machine may be silent for as long as SHORT, too
            return False

    assert await eventually(works, PATIENCE_S)


async def test_a_server_that_drips_is_cut_off_in_the_end(s3: S3Server, proxy: Proxy) -> None:
    """No single silence is too long, the whole is."""
    objects = open_objects(s3.fresh_bucket(), Patience(1, 60, 60, 0.5, 0))
    await open_objects(s3.fresh_bucket()).put("key", LARGE)
    proxy.delay_s = 0.2
    with anyio.fail_after(PATIENCE_S), pytest.raises(ObjectStoreUnavailable) as caught:
        await objects.put("key", LARGE)
    assert caught.value.detail == "the object store didn't answer in time"


async def test_a_server_that_is_gone_and_comes_back(call: Call, s3: S3Server, proxy: Proxy) -> None:
    """Refused connections end as one error; nobody has to be restarted."""
    objects = open_objects(s3.fresh_bucket(), Patience(retries=1))
    await objects.put("key", b"kept")
    await proxy.refuse()
    with anyio.fail_after(PATIENCE_S), pytest.raises(ObjectStoreUnavailable):
        await call(objects)
    await proxy.accept()
    assert await objects.get("key") == b"kept"


async def test_a_passing_failure_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One 503 is not the end, a second one is with a single retry."""
    answers = [503, 200, 503, 503]
    async with answering(lambda method, target: (answers.pop(0), ""), monkeypatch) as objects:
        await objects.put("key", b"x")
        with anyio.fail_after(PATIENCE_S), pytest.raises(ObjectStoreUnavailable):
            await objects.put("key", b"x")
    assert answers == []


async def test_a_reply_that_breaks_off_is_no_content(s3: S3Server, proxy: Proxy) -> None:
    """Half an object is an error; the next read has all of it."""
    objects = open_objects(s3.fresh_bucket(), Patience(retries=0))
    await objects.put("key", LARGE)
    await proxy.cut()
    proxy.cut_replies_after(100_000)
    with anyio.fail_after(PATIENCE_S), pytest.raises(ObjectStoreUnavailable):
        await objects.get("key")
    proxy.flow()
    assert await objects.get("key") == LARGE


async def test_a_put_that_breaks_off_leaves_what_was_there(s3: S3Server, proxy: Proxy) -> None:
    """Also when megabytes of it had arrived, and nothing at all under a new key."""
    objects = open_objects(s3.fresh_bucket(), Patience(retries=0))
    await objects.put("key", b"old")
    await proxy.cut()
    proxy.cut_requests_after(2_000_000)
    for key in ("key", "new"):
        with anyio.fail_after(PATIENCE_S), pytest.raises(ObjectStoreUnavailable):
            await objects.put(key, LARGE)
    proxy.flow()
    assert await objects.get("key") == b"old"
    assert not await objects.exists("new")


async def test_a_cancelled_call_ends_on_the_wire(call: Call, s3: S3Server, proxy: Proxy) -> None:
    """Its connection closes, it has changed nothing, and the store goes on working."""
    objects = open_objects(s3.fresh_bucket())
    await objects.put("key", b"old")
    proxy.stall()
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, objects)
            await proxy.held()
            tasks.cancel_scope.cancel()
        await proxy.idle()
        proxy.flow()
        assert await objects.get("key") == b"old"


async def test_ping_proves_every_right_and_leaves_nothing(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a bucket that is as it should be."""
    set_environment(monkeypatch, s3.environment)
    objects = open_objects(f"{s3.fresh_bucket()}/prefix")
    await objects.ping()
    await objects.ping()


async def test_ping_tells_which_right_is_missing_until_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading alone isn't enough; once proven, a ping only looks, until something fails."""
    refused, asked = {"PUT"}, list[str]()
    listing = "<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated></ListBucketResult>"

    def answer(method: str, target: str) -> tuple[int, str]:
        asked.append(method)
        if method in refused:
            return 403, ""
        if method == "POST":
            return 200, "<DeleteResult><Deleted><Key>probe</Key></Deleted></DeleteResult>"
        return (200, listing) if "list-type" in target else (200, "")

    async with answering(answer, monkeypatch) as objects:
        with pytest.raises(ObjectStoreUnavailable) as caught:
            await objects.ping()
        assert caught.value.detail == "access to the object store was denied"
        refused.clear()
        await objects.ping()
        asked.clear()
        await objects.ping()
        assert asked == ["GET"]
        refused.add("PUT")
        for attempt in (objects.put("key", b""), objects.ping()):
            with pytest.raises(ObjectStoreUnavailable):
                await attempt


async def test_prefixes_are_apart(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two deployments may share a bucket."""
    set_environment(monkeypatch, s3.environment)
    bucket = s3.fresh_bucket()
    await open_objects(f"{bucket}/one").put("key", b"1")
    with pytest.raises(NotFound):
        await open_objects(f"{bucket}/two").get("key")


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"])
def test_nothing_is_sent_unencrypted_to_another_machine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless somebody has said so."""
    monkeypatch.setenv(name, "http://store.example:9000")
    with pytest.raises(ConfigurationError) as caught:
        open_objects("s3://bucket")
    assert caught.value.reason == "object_store_needs_https"
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    open_objects("s3://bucket")


@pytest.mark.parametrize("endpoint", ["http://localhost:9000", "http://[::1]:9000", "https://store.example"])
def test_loopback_and_https_are_fine(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without further permission."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    open_objects("s3://bucket")


@pytest.mark.parametrize("url", [f"s3://id:{SECRET}@bucket", f"s3://bucket?secret={SECRET}"])
def test_credentials_in_the_url_are_refused_and_not_repeated(url: str) -> None:
    """They would end up in process lists and logs."""
    with pytest.raises(ConfigurationError) as caught:
        open_objects(url)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
