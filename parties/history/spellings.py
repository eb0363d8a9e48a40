"""Protocol numbers that differ in spelling only. A party counts each as a study of its own, with a budget of its own.

Nothing here decides: people are told, and say whether two numbers are one study.
"""

import unicodedata

# Letters of other scripts that look like Latin ones or digits, folded. Of both cases of a letter: what the capital one
# looks like, where they differ. After Unicode Technical Standard 39, "confusables", for Greek and Cyrillic.
_LOOK_ALIKE = str.maketrans(
    dict(
        zip(
            "\u0430\u0432\u0435\u0437\u0456\u0458\u043a\u043c\u043d\u043e\u0440\u0441\u0455\u0442\u0443\u0445\u04cf",
            "abe3ijkmhopcstyxl",
            strict=True,
        )
    )
    | dict(
        zip(
            "\u03b1\u03b2\u03b5\u03b6\u03b7\u03b9\u03ba\u03bc\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7",
            "abezhikmnoptyx",
            strict=True,
        )
    )
)
_DIGIT_LIKE = str.maketrans({"o": "0", "i": "1", "l": "1"})


def skeleton(number: str) -> str:
    """What is left of a protocol number without case, marks, spaces, dashes and other signs, by the look of letters.

    If nothing is left, the number itself.
    """
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", number).casefold())
    kept = "".join(each for each in folded if each.isalnum())
    return kept.translate(_LOOK_ALIKE).translate(_DIGIT_LIKE) or number
