from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class BunderstackConfig(AppConfig):
    name = "bunderstack_django"
    verbose_name = _("Background jobs")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks, conf

        checks.register()
        autodiscover_modules(*conf.value("AUTODISCOVER_MODULES"))
