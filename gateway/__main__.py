"""``python -m gateway``: the ``qa-gateway`` command where only the interpreter is known."""

from gateway.cli import main

main()
