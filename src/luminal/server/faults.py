"""What a client did wrong, or why it must wait, in OpenAI's form."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from starlette.responses import JSONResponse

from ..errors import InputError, LuminalError
from ..models.llm import Busy

KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error",
         429: "rate_limit_error", 500: "server_error", 503: "server_error"}  # fmt: skip


class Fault(Exception):
    """An answer with an error: HTTP status, message, OpenAI's code, the field it is about."""

    def __init__(
        self, status: int, message: str, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param

    def body(self) -> dict[str, Any]:
        kind = KINDS.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param,
                          "code": self.code}}  # fmt: skip

    def response(self) -> JSONResponse:
        headers = {"Retry-After": "1"} if self.status in (429, 503) else {}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse(self.body(), self.status, headers)


def fault_of(error: Exception) -> Fault:
    """The answer to an error of ours; anything unknown is a fault of the server."""
    if isinstance(error, Fault):
        return error
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_input=False)
        first = min(found, key=lambda each: each["type"].endswith("_type"))  # not another's form
        where = ".".join(map(str, first["loc"])) or None
        return Fault(400, f"{where or 'body'}: {first['msg']}", "invalid_value", where)
    if isinstance(error, Busy):
        return Fault(429, str(error), "queue_full")
    if isinstance(error, InputError):
        return Fault(400, str(error).partition("\n")[0], "invalid_value")
    if isinstance(error, LuminalError):
        return Fault(500, str(error).partition("\n")[0], "engine_error")
    return Fault(500, "internal error; the server's log says more", "internal_error")
