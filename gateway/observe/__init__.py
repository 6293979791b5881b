"""What can be seen from outside: logs, metrics, stage hooks, the audit trail."""
