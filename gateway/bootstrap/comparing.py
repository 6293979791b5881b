"""The doctor's comparison: what doesn't agree, as findings with what to do about each."""

from gateway.bootstrap.advice import told
from gateway.bootstrap.doctor import Finding, Verdict
from gateway.bootstrap.keeping import compare
from gateway.errors import ConfigurationError, GatewayError
from gateway.keeping.comparing import Discrepancy
from gateway.settings import Settings


async def examine_agreement(settings: Settings, *, repair: bool) -> list[Finding]:
    """Reads every object and counts every row. With embedded parts nobody else may use the data folder."""
    try:
        compared = await compare(settings, repair=repair)
    except ConfigurationError as error:
        return [Finding("agreement", Verdict.FAILED, error.reason, error.detail)]
    except GatewayError as error:
        return [Finding("agreement", Verdict.FAILED, error.code, told(error))]
    looked = (
        f"{compared.versions} versions, {compared.revisions} revisions with {compared.rows} rows, "
        f"{compared.citations} sampled citations compared"
    )
    return [Finding("agreement", Verdict.OK, "ok", looked), *map(_finding, compared.discrepancies)]


def _finding(found: Discrepancy) -> Finding:
    if not found.repaired:
        verdict = Verdict.WARNING if found.code == "journal_late" else Verdict.FAILED
        return Finding(found.part, verdict, found.code, found.detail)
    return Finding(found.part, Verdict.OK, found.code, f"{found.detail}: {found.repaired}")
