"""The catalog in a relational database: SQLAlchemy Core statements, one module a noun."""
