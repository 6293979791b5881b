"""What alembic runs: the migrations, on the connection and in the transaction of ``migrate``."""

from alembic import context

from gateway.adapters.sql.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
