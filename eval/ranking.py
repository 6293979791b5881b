"""``python -m eval.ranking``: fits the linear reranker; see gateway/evaluation/rank_fit.py."""

from gateway.evaluation.rank_fit import main

if __name__ == "__main__":
    main()
