"""The journal as the settings say: where it lies, and the loop that sends acts on to it."""

from gateway.adapters.objects import open_objects
from gateway.ingest.journal import Journal, JournalOutbox, JournalWriter
from gateway.settings import Settings


def journal_of(settings: Settings) -> Journal:
    """Raises ObjectStoreUnavailable, ConfigurationError for a URL that isn't allowed."""
    return Journal(open_objects(settings.journal_url or settings.data_dir / "journal"))


def journal_writer(settings: Settings, outbox: JournalOutbox) -> JournalWriter:
    """Opens the journal when it first has something to look for: no process fails to start for its sake."""
    return JournalWriter(outbox, lambda: journal_of(settings))
