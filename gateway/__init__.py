"""QA gateway: permitted, evidenced, streamed answers over an enterprise's own documents."""

__version__ = "0.1.0"
