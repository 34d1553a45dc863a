"""The forms of actions that need input or confirmation."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from ..exceptions import InvalidOption
from ..joboptions import MAX_PRIORITY, MIN_PRIORITY
from ..options import check_queue_name

MAX_DISTANCE = timedelta(days=36_500)
UNIT_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400}


class ConfirmForm(forms.Form):
    """A confirmation without input."""


class RescheduleForm(forms.Form):
    """A time or a delay; `cleaned_data["when"]` is what Job.reschedule() takes."""

    run_at = forms.DateTimeField(
        label=_("Run at"),
        required=False,
        help_text=_("In the time zone of this site. A time in the past means now."),
        widget=forms.DateTimeInput(
            attrs={"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S"
        ),
    )
    delay = forms.FloatField(
        label=_("Or after"),
        required=False,
        min_value=0,
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    unit = forms.ChoiceField(
        label=_("Unit"),
        initial="minutes",
        choices=[
            ("seconds", _("seconds")),
            ("minutes", _("minutes")),
            ("hours", _("hours")),
            ("days", _("days")),
        ],
    )

    def clean_run_at(self) -> Any:
        run_at = self.cleaned_data["run_at"]
        if run_at is not None and abs(run_at - timezone.now()) > MAX_DISTANCE:
            raise forms.ValidationError(_("That is more than 100 years away."))
        return run_at

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        if self.errors:
            return values
        run_at, delay = values.get("run_at"), values.get("delay")
        if (run_at is None) == (delay is None):
            raise forms.ValidationError(_("Give either a time or a delay."))
        if delay is None:
            return {**values, "when": {"run_at": run_at}}
        seconds = delay * UNIT_SECONDS[values["unit"]]
        if seconds > MAX_DISTANCE.total_seconds():
            raise forms.ValidationError(_("That is more than 100 years away."))
        return {**values, "when": {"delay": timedelta(seconds=seconds)}}


class MoveForm(forms.Form):
    """Another queue, another priority, or both."""

    queue = forms.CharField(
        label=_("Queue"),
        required=False,
        max_length=64,
        help_text=_("Leave it empty to keep the queue."),
        widget=forms.TextInput(
            attrs={"list": "jobqueue-queues", "autocomplete": "off"}
        ),
    )
    priority = forms.IntegerField(
        label=_("Priority"),
        required=False,
        min_value=MIN_PRIORITY,
        max_value=MAX_PRIORITY,
        help_text=_("From -100 to 100, higher runs first. Leave it empty to keep it."),
    )

    def clean_queue(self) -> str | None:
        name = self.cleaned_data["queue"]
        if not name:
            return None
        try:
            return check_queue_name(name)
        except InvalidOption as error:
            raise forms.ValidationError(
                _(
                    "A queue name has 1 to 64 letters, digits, dots, dashes or "
                    "underscores."
                )
            ) from error

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        if self.errors:
            return values
        if values.get("queue") is None and values.get("priority") is None:
            raise forms.ValidationError(_("Give a queue, a priority, or both."))
        return values


class RequeueForm(forms.Form):
    """Whether the attempts so far still count."""

    attempts = forms.ChoiceField(
        label=_("Attempts"),
        initial="reset",
        widget=forms.RadioSelect,
        choices=[
            ("reset", _("Start again with all attempts")),
            ("keep", _("Keep the count and give one more attempt")),
        ],
    )
