"""What is asked about now isn't answered with what was true before."""

import pytest

from gateway.answer.reuse.relative_time import about_now

_NOW = [
    *("What is on the menu today?", "Is it open tonight?", "What failed yesterday?", "Tomorrow's schedule"),
    *("Is it open now?", "who is on call right now", "Who is currently on call?", "the current owner"),
    *("status at the moment", "at present", "nowadays", "these days", "as we speak", "up-to-date list"),
    *(
        "this week",
        "next week",
        "last week",
        "this month",
        "next quarter",
        "last fiscal year",
        "past 3 months",
    ),
    *("Is the office open on Monday?", "this Fri", "next Christmas", "last May", "the coming weekend"),
    *(
        "3 days ago",
        "Is it back in 3 days?",
        "in a couple of weeks",
        "in an hour's time",
        "two weeks from now",
    ),
    *("the latest version", "recent changes", "upcoming holidays", "newest release", "the last update"),
    *("Is it still valid?", "Is it out yet?", "any longer", "so far", "soon", "days left", "the next step"),
    *("How long until the launch?", "How long has it been down?", "How old is the firm?", "What time is it?"),
    *(
        "by the end of the month",
        "the rest of the year",
        "TODAY",
        "ｔｏｄａｙ",
        "What is the current account?",
    ),
    *(
        "今天放假吗",
        "今晚几点关门",
        "昨天的会议",
        "明天上班吗",
        "后天呢",
        "前天的日志",
        "去年的规定",
        "明年的假期",
    ),
    *(
        "现在开放吗",
        "目前的负责人",
        "当前版本",
        "最近的变更",
        "近期计划",
        "最新版本",
        "刚才的告警",
        "至今有效吗",
    ),
    *(
        "本周值班",
        "这周的安排",
        "下周放假吗",
        "上个月的报表",
        "本季度目标",
        "下学期",
        "周五放假吗",
        "月底发工资吗",
    ),
    *(
        "还有多久到期",
        "还剩几天",
        "3天后可以吗",
        "三个月前的记录",
        "还在维护吗",
        "仍然有效吗",
        "已经发布了吗",
        "马上上线吗",
    ),
    *("現在開放嗎", "這週的安排", "下個月", "剛才", "幾點了"),
]
_ALWAYS = [
    *(
        "Nowhere is it said",
        "What is known of it?",
        "currentcy",
        "What does current_user return?",
        "snow days",
    ),
    *(
        "refund allowed after 7 days?",
        "Refunds within 30 days",
        "vacation days in a year",
        "requests in a minute",
    ),
    *(
        "What are the office hours?",
        "How long does probation last?",
        "Is it closed on Mondays?",
        "upload limit",
    ),
    *(
        "What is next to the lobby?",
        "Who must present a badge?",
        "nextcloud",
        "Is it long?",
        "agony",
        "stillness",
    ),
    *(
        "上班时间是什么",
        "下班要打卡吗",
        "每周一次的例会",
        "每周一开会吗",
        "如何同时下载",
        "发现有错怎么办",
        "体现在哪里",
    ),
    *("选A还是B", "退款7天内允许吗", "基本日志", "年假有几天", "报销流程", "", "42"),
]


@pytest.mark.parametrize("question", _NOW)
def test_a_question_about_now_is_known(question: str) -> None:
    """In English and Chinese; rather once too often, for that costs a call."""
    assert about_now(question)


@pytest.mark.parametrize("question", _ALWAYS)
def test_a_question_of_always_is_let_be(question: str) -> None:
    """Words inside others, durations and what comes round every week aren't about now."""
    assert not about_now(question)
