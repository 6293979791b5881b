"""Follow-ups by rules: which questions lean on the one before, and what they are searched as."""

import pytest

from gateway.answer.followup import leans, names, stands_alone, told_with
from tests.contract.vector_world import chunk

LEANING = """
And for contractors?
and in Germany?
What about interns?
How about part-time staff?
Ok, and what about sick leave?
Is it paid?
Isn't it paid?
Who approves them?
How do I renew it?
When does it expire?
What's its limit?
Can they work from home?
Where did he begin teaching?
Who signed this?
Is that allowed?
Which one is cheaper?
Does the same apply?
And E-42?
那退货呢？
实习生呢？
那VPN呢？
那合同工有几天？
那么合同工有几天？
还有合同工呢？
另外实习生？
它多少钱？
他们有几天年假？
那个多少钱？
这种情况怎么处理？
其中带薪的有几天？
该手册？
""".strip().splitlines()

STANDING = """
What is PTO?
What does ERR_FOO_999 mean?
What is the capital of Mongolia?
And how long does a break-glass session last?
And what is the limit of an upload?
And tell me about the travel policy.
So which days are public holidays?
How long does it take to get a badge?
Is it allowed to bring a dog?
Is it necessary to wear a badge in the warehouse?
Does it cost extra to ship abroad?
Is it paid for contractors?
What time is it?
Who approves expenses that exceed 500 euros?
How many days of leave do contractors have?
What happens when IT is down?
Who leads the IT department?
How do I reach IT?
Does IT support Linux?
Do interns have their own desks?
Do employees keep their laptop?
Can a team choose its own on-call hours?
When may managers approve their own leave?
Who pays when an employee loses their badge?
How do services renew their certificates?
What is the bonus this year?
Which holidays are this month?
What does this company do?
Is there same-day delivery?
How many hours is one shift?
What is one share worth?
Who is on call at night?
How do I return a product?
What does the page about certificates say?
Which database do the payment services use?
退货期限是几天？
今天上海的天气怎么样？
合同工的年假有几天？
年假应该怎么申请？
应该如何申请退款？
数据库连接池应该设多大？
数据库连接池应该设多大呢？
退款是多少天呢？
退款是多少天？
其他假期有哪些？
其它假期有哪些？
请问年假有几天呢？
该员工手册有多少页？
该怎么申请年假？
该频道每日以播放什么剧为主？
谁设计了该教堂？
年假可以折现吗？
年假可不可以折现呢？
应该找谁审批呢？
哪些假期带薪呢？
报销走微信还是支付宝呢？
还有多少天年假？
还有哪些假期？
还有没有其他假期？
另外的假期如何申请？
那里有食堂吗？
那些年的工资标准是什么？
这个月有几天假期？
这家公司叫什么？
其他员工的工资是多少？
其余的费用谁承担？
员工请病假时他们的工资怎么算？
唐鱼是什么科的其中一种？
艾努人称他们自己的语言为什么？
如何使用其余的礼品卡？
""".strip().splitlines()

EMPTY = ["ok", "Ok?", "it it it", "Why?", "How long?", "What does that mean?", "And then?", "What about it?"]
EMPTY += ["为什么？", "那呢？", "那怎么办？", "是吗？", "它呢？", "多少？"]


@pytest.mark.parametrize("question", LEANING)
def test_a_question_that_names_only_what_is_new_leans_on_the_one_before(question: str) -> None:
    """Ellipsis and pronouns, in both languages; nothing may lean on it in its turn."""
    assert leans(question)
    assert not stands_alone(question)


@pytest.mark.parametrize("question", STANDING)
def test_a_question_that_says_what_it_is_about_stands_alone(question: str) -> None:
    """History must not change what it finds."""
    assert not leans(question)
    assert stands_alone(question)


@pytest.mark.parametrize("question", EMPTY)
def test_a_question_that_names_nothing_neither_leans_nor_stands(question: str) -> None:
    """It would only be the question before once more."""
    assert not leans(question)
    assert not stands_alone(question)


def test_a_long_text_leans_on_nothing() -> None:
    """However it begins."""
    assert leans("And for contractors?" + " " * 300)
    assert not leans("And for contractors" + "?" * 300)
    assert not leans("那" + "合同工" * 100 + "呢？")


@pytest.mark.parametrize(
    ("question", "before", "searched"),
    [
        (
            "And for contractors?",
            "How many vacation days do employees get?",
            "And for contractors? (vacation days employees)",
        ),
        ("And E-42?", "What does error code E-41 mean?", "And E-42? (error code)"),
        ("Is it paid?", "Is parental leave paid?", "Is it paid? (parental leave)"),
        ("And sick leave?", "How many days of parental leave are there?", "And sick leave? (days)"),
        ("And for interns?", "What's the IT hotline's number?", "And for interns? (IT hotline number)"),
        ("那合同工呢？", "门店店员的年假有几天？", "那合同工呢？（门店店员 年假）"),
        ("那婚假呢？", "门店的病假有几天？", "那婚假呢？（门店）"),
        ("那婚假呢？", "病假有几天？", ""),
        ("And sick leave, is it?", "Are days of leave paid?", "And sick leave, is it? (days paid)"),
        ("And for contractors?", "Why?", ""),
    ],
)
def test_only_telling_words_of_the_question_before_are_carried(
    question: str, before: str, searched: str
) -> None:
    """None twice, and nothing that the follow-up puts something else in the place of."""
    assert told_with(question, before) == searched


@pytest.mark.parametrize(
    ("question", "passage", "named"),
    [
        ("What about database failover?", "The failover of a database takes a minute.", True),
        ("What about database failover?", "A session may reach every database.", False),
        ("And for part-time staff?", "Staff who work part time get half of it.", True),
        ("And E-42?", "E-41 comes before 42.", False),
        ("And E-42?", "E-42 says that the disk is full.", True),
        ("那婚假呢？", "婚假为 10 天。", True),
        ("那婚假呢？", "病假为 12 天，结婚另行安排假期。", False),
        ("那节假日加班呢？", "法定节假日，加班支付三倍工资。", True),
        ("那节假日加班呢？", "法定节假日不上班。", False),
        ("那VPN账号呢？", "VPN 的账号由信息部开通。", True),
        ("那VPN账号呢？", "账号由信息部开通。", False),
    ],
)
def test_a_passage_names_every_telling_word_of_the_follow_up(
    question: str, passage: str, named: bool
) -> None:
    """In whatever order; Chinese by pairs of characters, for words aren't known."""
    assert names(chunk(title="Page", section="", content=passage), question) is named
