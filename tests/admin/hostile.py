"""Two hundred hostile texts, and rows with them in every field."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.db import connections
from django.utils import timezone

from django_jobqueue.models import Attempt, DeadJob, Job, Queue, WorkerHeartbeat
from django_jobqueue.models.record import get_alias, make_id

# Part of every text, to recognise a tag or an attribute made from one.
MARK = "zzhostile"

_TAGS = (
    "script", "img", "svg", "iframe", "style", "a", "form", "input", "details", "b",
    "math", "object", "embed", "link", "meta", "base", "video", "textarea", "title",
    "template", "noscript", "xmp", "plaintext", "pre", "progress",
)  # fmt: skip
_WRAPPERS = (
    "<{tag} {mark}=1 onload={mark}()>",
    '"><{tag} {mark}="1">{mark}</{tag}>',
    "'><{tag} {mark}='1'>{mark}</{tag}>",
    "</{tag}><{mark}>",
    "</pre></details></textarea><{tag} class={mark}>",
    "&lt;{tag} {mark}&gt; &#60;{tag}&#62;",
)
_OTHERS = (
    '" onmouseover="{mark}()" x="',
    "' autofocus onfocus='{mark}()",
    "javascript:{mark}()",
    "data:text/html,<{mark}>",
    "<!--{mark}-->",
    "--><{mark}>",
    "]]><{mark}>",
    "<![CDATA[<{mark}>]]>",
    "<?{mark}?>",
    "{{{{ {mark} }}}}",
    "{{% debug %}}{mark}",
    "{{% load {mark} %}}",
    "{{# {mark} #}}",
    "${{{mark}}}",
    "%(count)d {mark} %s %n %%",
    "{{}} {{0}} {{{mark}}}",
    "\\u003cscript {mark}\\u003e",
    "<\u2028script {mark}>",
    "\u202e<{mark}>\u202c",
    "\u200b\u200d\ufeff<{mark}>",
    "\x01\x08\x1b[31m<{mark}>\x7f\x85",
    "\uff1c{mark}\uff1e \u2039{mark}\u203a",
    "<{mark}>" + "a\u0300\u0301\u0302" * 30,
    "\U0001f469\u200d\U0001f680<{mark}>\U000e0041",
    "\U0010ffff\ufdd0<{mark}>",
    "\r\n\t<{mark}>\r\n",
    "../../{mark}/?a=1&b=<{mark}>#x",
    "<a href='//{mark}'>" * 20,
    "<{mark}>" * 2_000,
    '\\"<{mark}>' + "\\" * 500,
)
TEXTS = [
    wrapper.format(tag=tag, mark=MARK) for tag in _TAGS for wrapper in _WRAPPERS
] + [text.format(mark=MARK) for text in _OTHERS]
# Upper case for the rest: HTML parsers ignore the case of tags.
TEXTS += [text.upper() for text in TEXTS[: 200 - len(TEXTS)]]


def make_hostile_rows(texts: list[str]) -> list[Any]:
    """Insert rows of each model that hold each of the texts in each field."""
    made: list[Any] = []
    for text in texts:
        worker = WorkerHeartbeat(
            id=uuid4(),
            host=text[:255],
            name=text[:200],
            version=text[:50],
            queues={text: 1, "nested": [text]},
            last_seen_at=timezone.now(),
        )
        job = Job(
            **_make_values(text),
            status="running",
            worker_id=worker.pk,
            claimed_at=timezone.now(),
            lease_token=1,
            result=_make_json(text),
        )
        dead = DeadJob(
            **_make_values(text), reason="exception", fingerprint=text[:32], attempts=1
        )
        attempts = [
            Attempt(
                job_id=record.pk,
                worker_id=worker.pk,
                outcome="failed",
                exception_class=text[:200],
                message=text,
                traceback=f"Traceback\n  {text}\n{text}",
                finished_at=timezone.now(),
            )
            for record in (job, dead)
        ]
        made += [worker, job, dead, *attempts, Queue(name=_make_name(text))]
    names = {row.name: row for row in made if isinstance(row, Queue)}
    made = [row for row in made if not isinstance(row, Queue)] + list(names.values())
    for model in (WorkerHeartbeat, Job, DeadJob, Attempt, Queue):
        rows = [row for row in made if isinstance(row, model)]
        model.objects.bulk_create(rows)
    return made


def _make_values(text: str) -> dict[str, Any]:
    return {
        "id": make_id(),
        "job_type": text[:200],
        "queue": text[:64],
        "payload": {text: text, "list": [text, {"deep": text}]},
        "args": [text],
        "run_at": timezone.now() - timedelta(minutes=1),
        "created_at": timezone.now(),
        "error": text,
        "unique_key": f"{make_id()} {text}"[:255],
        "concurrency_key": text[:255],
        "progress": {"fraction": 0.5, "note": text},
        "tags": [text],
        "meta": {text: text},
        "backoff": {"kind": text},
        "finished_by": uuid4(),
    }


def _make_json(text: str) -> Any:
    value: Any = {text: [text]}
    if connections[get_alias()].vendor == "sqlite":
        # PostgreSQL refuses both in jsonb; SQLite keeps the escapes as they are.
        value["unstorable"] = f"\ud800 \0 {text}"
    return value


def _make_name(text: str) -> str:
    # The name of a queue is part of a URL, which has no line breaks.
    return "".join(text.split())[:60]
