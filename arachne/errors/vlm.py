"""Why there is no description; the image completes without one."""

from typing import ClassVar

from arachne.errors.root import ArachneError


class VlmError(ArachneError):
    """A vision-language model gave no description. `server_at_fault` tells whether its server seems to be ill."""

    code, http_status, title = "vlm_failed", 502, "No description"
    server_at_fault: ClassVar[bool] = False


class VlmUnreachable(VlmError):
    """Nothing answers at VLM_URL, or the connection broke."""

    code, retryable, server_at_fault = "vlm_unreachable", True, True


class VlmTimedOut(VlmError):
    """No whole answer came in time."""

    code, retryable, server_at_fault = "vlm_timeout", True, True


class VlmBusy(VlmError):
    """The server's own queue is full; it is well otherwise."""

    code, retryable = "vlm_busy", True


class VlmFailed(VlmError):
    """The server failed, or answered with what is not its protocol."""

    retryable, server_at_fault = True, True


class VlmRefused(VlmError):
    """The server won't take this request, however often it is sent."""

    code = "vlm_refused"


class VlmModelMissing(VlmError):
    """The server doesn't have the model."""

    code = "vlm_model_missing"


class VlmAnswerRejected(VlmError):
    """The model's answer can't be used; the message is the stage's reason."""

    code = "vlm_answer_rejected"
