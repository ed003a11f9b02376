"""What clients may ask of the service."""

import dataclasses

from engine.settings import setting


@dataclasses.dataclass(frozen=True)
class Limits:
    """What clients may ask: flags of the command."""
    topic = "Limits"
    max_body_bytes: int = setting(2_000_000, "Bytes of the body of a request.", positive=True)
    max_client_batch_size: int = setting(256, "Texts, or pairs of texts, of a request.",
                                         positive=True)
    max_concurrent_requests: int = setting(
        256, "Requests that are answered at a time; those beyond are refused at once.",
        between=(1, 4096))
    timeout: float = setting(
        30.0, "Seconds that a client may take to send a request or to read its answer, and that "
        "the answer may take.", positive=True)
