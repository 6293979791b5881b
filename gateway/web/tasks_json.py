"""A task as its readers get it, in answers and in events."""

from collections.abc import Mapping

from gateway.ingest.task import TaskRecord, TaskState

ENDED = frozenset({TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED})


def task_json(task: TaskRecord) -> Mapping[str, object]:
    """Everything, with its documents."""
    documents = [
        {
            "document_id": d.document_id,
            "document_version": d.document_version,
            "source": d.source,
            "state": d.state,
            "error": d.error,
        }
        for d in task.documents
    ]
    return {**listed_task_json(task), "documents": documents}


def listed_task_json(task: TaskRecord) -> Mapping[str, object]:
    """As in a list, which tells nothing of its documents."""
    error = None
    if task.error_code is not None:
        error = {"code": task.error_code, "detail": task.error_detail}
    return {
        "task_id": task.task_id,
        "kind": task.kind.value,
        "knowledge_base": task.knowledge_base,
        "state": task.state.value,
        "stage": task.stage,
        "progress": {"done": task.done, "total": task.total},
        "retry_at": task.retry_at,
        "trouble": task.trouble,
        "error": error,
        "release_id": task.release_id,
        "target": task.target,
        "report": task.report,
        "created_at": task.created_at,
        "updated_at": task.updated_at,
    }
