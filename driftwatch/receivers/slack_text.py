"""Texts of the outside as Slack shows them: nothing in them mentions, links or formats. Pure."""

from __future__ import annotations

from slack_sdk.models.blocks import MarkdownTextObject, PlainTextObject, SectionBlock

# Slack's signs of formatting, by look-alikes: a label must not make bold what follows it. An
# underscore inside a word formats nothing and stays.
_LOOK_ALIKE = str.maketrans({"*": "∗", "~": "∼", "`": "ˋ"})


def escape(text: str) -> str:
    """``& < >`` as Slack wants them: a label can neither mention nor link.

    >>> escape("<!channel> & co")
    '&lt;!channel&gt; &amp; co'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def harmless(text: str) -> str:
    """Escaped, and without a sign that would format the text around it.

    >>> harmless("*a* max_num_seqs _b_")
    '∗a∗ max_num_seqs ˍbˍ'
    """
    replaced = text.translate(_LOOK_ALIKE)
    inside = [
        "ˍ" if ch == "_" and not (_is_word(replaced, at - 1) and _is_word(replaced, at + 1)) else ch
        for at, ch in enumerate(replaced)
    ]
    return escape("".join(inside))


def _is_word(text: str, at: int) -> bool:
    return 0 <= at < len(text) and (text[at].isalnum() or text[at] == "_")


def mrkdwn(text: str) -> MarkdownTextObject:
    """A text with our own formatting; ``verbatim``: names and addresses in labels stay text."""
    return MarkdownTextObject(text=text, verbatim=True)


def top(text: str) -> SectionBlock:
    """Line 1, without formatting."""
    return SectionBlock(text=PlainTextObject(text=text, emoji=True))
