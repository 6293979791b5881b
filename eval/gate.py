"""``python -m eval.gate``: the fit of the evidence gate, as ``qa-gateway eval --calibrate`` does it."""

from gateway.evaluation.gate_fit import main, report, write

__all__ = ["main", "report", "write"]

if __name__ == "__main__":
    main()
