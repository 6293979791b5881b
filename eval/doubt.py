"""``python -m eval.doubt``: fits the extractive model's doubt; see gateway/evaluation/doubt_fit.py."""

from gateway.evaluation.doubt_fit import main

if __name__ == "__main__":
    main()
