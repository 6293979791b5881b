"""The script of a question: what decides which thresholds it is judged by."""

import pytest

from gateway.retrieval.script import HAN, LATIN, SCRIPTS, script_of


@pytest.mark.parametrize(
    ("question", "script"),
    [
        ("How large may an upload be?", LATIN),
        ("Wie groß darf eine Datei sein?", LATIN),
        ("What does ERR_4012 mean?", LATIN),
        ("ERR_4012?", ""),
        ("上传的文件最大是多少？", HAN),
        ("payment-service 的超时是多少", HAN),
        ("㐂", HAN),
        ("ERR_4012 怎么办", HAN),
        ("ERR_UPLOAD_TOO_LARGE_4012？请问", HAN),
        ("GATEWAY_RETRIEVAL_CAP_MS 是多少", HAN),
        ("What does the term 上传限制 in the export settings mean?", ""),
        ("How large may an upload be 的", ""),
        ("Какая столица 的", ""),
        ("東京ﾀﾜｰ", ""),
        ("ㄅㄆ 中", ""),
        ("ファイルの最大サイズは？", ""),
        ("最大サイズ", ""),
        ("파일 크기 제한은?", ""),
        ("Какой размер файла?", ""),
        ("How large is файл?", ""),
        ("40 12?", ""),
        ("", ""),
    ],
)
def test_the_script_of_a_question(question: str, script: str) -> None:
    """Names and codes in Latin letters leave a Chinese question Chinese; nothing else is guessed."""
    assert script_of(question) == script
    assert script in ("", *SCRIPTS)
