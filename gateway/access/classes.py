"""ACL classes: one number for each distinct (allow set, deny set) of a knowledge base."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gateway.errors import InvalidField, TooManyAclClasses

#: revoked documents move here; no scope ever contains it
CLASS_OF_NOBODY = 0
#: more permitted classes than this are an error, never a wider filter
MAX_PERMITTED_CLASSES = 4096

#: every principal of the tenant has this name
_EVERYBODY = "public"
_MAX_ENTRIES = 1000
_MAX_ENTRY_CHARS = 300


def checked_entry(entry: str) -> str:
    """``group:G``, ``user:U`` or ``public``; raises InvalidField for anything else."""
    kind, separator, name = entry.partition(":")
    if entry == _EVERYBODY:
        return entry
    plain = name == name.strip() and name.isprintable() and len(entry) <= _MAX_ENTRY_CHARS
    if kind not in {"group", "user"} or not separator or not name or not plain:
        raise InvalidField(f"an ACL entry is group:NAME, user:NAME or public, not {entry[:80]!r}")
    return entry


@dataclass(frozen=True, slots=True)
class Acl:
    """Who may see a document. Deny beats allow; an empty allow set matches nobody."""

    allow: frozenset[str]
    deny: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, allow: Iterable[str], deny: Iterable[str] = ()) -> "Acl":
        """Raises InvalidField for a malformed entry or more entries than allowed."""
        acl = cls(frozenset(map(checked_entry, allow)), frozenset(map(checked_entry, deny)))
        if len(acl.allow) + len(acl.deny) > _MAX_ENTRIES:
            raise InvalidField(f"an ACL has at most {_MAX_ENTRIES} entries")
        return acl

    def permits(self, principals: Collection[str], denied_as: Collection[str] = ()) -> bool:
        """``denied_as``: names that can't let anybody in any more and still keep him out, such as
        revoked groups.
        """
        denied = self.deny.intersection(principals) or self.deny.intersection(denied_as)
        return not denied and bool(self.allow.intersection(principals))

    def covers(self, other: "Acl") -> bool:
        """Whether whoever ``other`` lets in is let in here as well. False where that can't be told."""
        everybody = _EVERYBODY in self.allow
        return self.deny <= other.deny and (everybody or other.allow <= self.allow)


@dataclass(frozen=True, slots=True)
class AclClass:
    """The number that stands for one ACL in a knowledge base's chunks; never reused."""

    number: int
    acl: Acl


def permitted_classes(
    classes: Iterable[AclClass], principals: Collection[str], denied_as: Collection[str] = ()
) -> frozenset[int]:
    """The numbers of the classes that let ``principals`` in. Class 0 is never among them."""
    return frozenset(
        c.number for c in classes if c.number != CLASS_OF_NOBODY and c.acl.permits(principals, denied_as)
    )


def refuse_too_many(classes: Collection[AclClass], acl: Acl) -> None:
    """Before the class of ``acl`` comes into use beside ``classes``: raises TooManyAclClasses when somebody
    whom it lets in would be permitted more classes than a filter may list.
    """
    if len(classes) < MAX_PERMITTED_CLASSES:
        return
    for entry in sorted(acl.allow):
        if sum(not c.acl.allow.isdisjoint({entry, _EVERYBODY}) for c in classes) >= MAX_PERMITTED_CLASSES:
            raise TooManyAclClasses(
                f"{entry} is let in by {MAX_PERMITTED_CLASSES} different ACLs of this knowledge base; "
                "use groups, so that documents share ACLs"
            )
