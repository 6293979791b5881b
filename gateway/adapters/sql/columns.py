"""Columns: the kinds of columns that the catalog's tables have, and the names of their constraints."""

from typing import Any

from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, Text, text

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

#: a number the database hands out, rising in order of insertion
_SERIAL = BigInteger().with_variant(Integer, "sqlite")


def words(name: str, *args: Any, **options: Any) -> Column[str]:
    return Column(name, Text, *args, **{"nullable": False, **options})


def number(name: str, **options: Any) -> Column[int]:
    return Column(name, Integer, **{"nullable": False, **options})


def moment(name: str, **options: Any) -> Column[float]:
    return Column(name, Double, **{"nullable": False, **options})


def serial(name: str) -> Column[int]:
    return Column(name, _SERIAL, primary_key=True, autoincrement=True)


def partial(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    condition = text(where)
    return Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)
