"""The tests of Django that our backend does not pass, each with the reason.

A listed test that passes is reported too: remove it from the list then.
"""

_SUPPORTED = "It asserts what ImmediateBackend lacks and our backend supports: "
_MEMORY = (
    "It changes a result in the memory of DummyBackend and expects refresh() to return "
    "the change; ours reads the row."
)

DIFFERENCES = {
    "DummyBackendTestCase.test_refresh_result": _MEMORY,
    "DummyBackendTestCase.test_refresh_result_async": _MEMORY,
    "ImmediateBackendTestCase.test_cannot_get_result": f"{_SUPPORTED}get_result().",
    "ImmediateBackendTestCase.test_cannot_pass_run_after": f"{_SUPPORTED}run_after.",
    "ImmediateBackendTestCase.test_cannot_refresh_result": f"{_SUPPORTED}refresh().",
    "ImmediateBackendTestCase.test_throws_keyboard_interrupt": (
        "ImmediateBackend lets KeyboardInterrupt through to the caller of enqueue(). A "
        "worker records it as the failure of the attempt that raised it."
    ),
    "ImmediateBackendTransactionTestCase"
    ".test_doesnt_wait_until_transaction_commit_by_default": (
        "A job is part of the transaction that enqueues it, so it cannot run before "
        "the commit."
    ),
    "TaskTestCase.test_refresh_result": (
        "It calls refresh() on the event loop, where Django refuses queries. In async "
        "code, use arefresh()."
    ),
}
