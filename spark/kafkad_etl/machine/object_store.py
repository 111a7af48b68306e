"""The object store of a job's paths s3a://: settings for Spark, keys in the environment, and whether it is there.

Spark itself takes the keys from the environment. They are in no file, no command line and no setting of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import S3A, is_s3_key, paths_of, spark_conf
from kafkad_etl.job import Job
from kafkad_etl.machine.reachability import SECONDS

ID, SECRET = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
_ENDPOINT = "AWS_ENDPOINT_URL"
_OTHER_WAYS = (
    "spark.hadoop.fs.s3a.aws.credentials.provider",
    "spark.hadoop.hadoop.security.credential.provider.path",
)
"""Settings of Spark by which keys come from elsewhere."""

Ask = Callable[[str], int]
"""Returns the HTTP status that a URL is answered with; raises OSError if it is not."""


def faults(job: Job, environ: Mapping[str, str], ask: Ask | None = None) -> Iterator[EtlError]:
    """Errors for missing keys, and for a store or a bucket that is not there. Amazon's own is not asked: roles may give
    keys there, and networks have their own ways to it."""
    found: dict[str, str] = {}
    for key, path in paths_of(job):
        if path.startswith(f"{S3A}://"):
            found.setdefault(path.removeprefix(f"{S3A}://").partition("/")[0], key)
    if not found:
        return
    endpoint = endpoint_of(job, environ)
    yield from _of_keys(job, environ, endpoint, next(iter(found.values())))
    for bucket, key in found.items() if endpoint else ():
        yield from _of_bucket(endpoint, bucket, key, ask or _status)


def endpoint_of(job: Job, environ: Mapping[str, str]) -> str:
    """The store's URL; empty for Amazon's."""
    named = str(spark_conf(job).get("spark.hadoop.fs.s3a.endpoint", "")) or environ.get(_ENDPOINT, "")
    return named if "://" in named or not named else f"https://{named}"


def _of_keys(job: Job, environ: Mapping[str, str], endpoint: str, key: str) -> Iterator[EtlError]:
    if any(is_s3_key(name) or name in _OTHER_WAYS for name in job.spark.conf):
        return
    missing = [name for name in (ID, SECRET) if not environ.get(name)]
    if len(missing) == 1 or (missing and endpoint):
        verb = "is" if len(missing) == 1 else "are"
        what = f"{' and '.join(missing)} {verb} not set, and s3a:// takes its keys from the environment"
        yield EtlError(what, EtlExit.ENVIRONMENT, key=key, hints=(f"export {ID}=… {SECRET}=…",))


def _of_bucket(endpoint: str, bucket: str, key: str, ask: Ask) -> Iterator[EtlError]:
    """Whoever is not logged in is told apart a bucket that is there (403) and one that is not (404)."""
    try:
        status = ask(f"{endpoint.rstrip('/')}/{bucket}")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        what = f"the object store {endpoint} is not responding: {getattr(reason, 'strerror', None) or reason}"
        yield EtlError(what, EtlExit.CLUSTER, key=key)
        return
    if status == 404:
        hint = "create it, or name another in the path: s3a://BUCKET/…"
        yield EtlError(f"the object store {endpoint} has no bucket {bucket}", EtlExit.CLUSTER, key=key, hints=(hint,))


def _status(url: str) -> int:
    """Asks without a login. Certificates are left to Java, which has its own list of those that it trusts."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection
    from ssl import CERT_NONE, create_default_context

    parts = urlsplit(url)
    connection: Any
    if parts.scheme == "https":
        tls = create_default_context()
        tls.check_hostname, tls.verify_mode = False, CERT_NONE
        connection = HTTPSConnection(parts.netloc, timeout=SECONDS, context=tls)
    else:
        connection = HTTPConnection(parts.netloc, timeout=SECONDS)
    try:
        connection.request("HEAD", parts.path)
        return int(connection.getresponse().status)
    except HTTPException as error:
        raise OSError(f"it does not answer in HTTP ({error})") from error
    finally:
        connection.close()
