"""Settings from files of one folder, as container engines mount secrets: each file is named as its variable.

So `/run/secrets/arachne_database_url` is what ARACHNE_DATABASE_URL is where no variable of that name is set.
"""

from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import SecretsSettingsSource

from arachne.errors import SetupError


class SecretFiles(SecretsSettingsSource):
    """What the files of SECRETS_DIR say. One that is empty says nothing."""

    def __call__(self) -> dict[str, Any]:
        """Values by setting.

        Raises:
            SetupError: the folder that SECRETS_DIR names is not there, or a file of it can't be read.
        """
        named = self.current_state.get("secrets_dir")
        folder = Path(named or self.settings_cls.model_fields["secrets_dir"].default)
        if not folder.is_dir():
            if named:
                raise SetupError(f"ARACHNE_SECRETS_DIR: {folder} is no folder.")
            return {}
        self.secrets_dir = folder
        return super().__call__()

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """The file's text without spaces around it, None where there is none."""
        try:
            value, key, is_complex = super().get_field_value(field, field_name)
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            file = f"{self.secrets_dir}/arachne_{field_name}"
            raise SetupError(f"ARACHNE_{field_name.upper()}: {file} can't be read ({why}).") from None
        return value or None, key, is_complex
