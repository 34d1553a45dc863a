"""The ledger is in the `business` database, everything else in `default`."""

from typing import Any

from django.db.models import Model

from .models import LedgerEntry


class LedgerRouter:
    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        return "business" if model is LedgerEntry else None

    db_for_write = db_for_read

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **hints: Any
    ) -> bool:
        is_ledger = (app_label, model_name) == ("shop", "ledgerentry")
        return is_ledger == (db == "business")
