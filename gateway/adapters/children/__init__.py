"""Children: work in processes of its own, over framed pipes."""
