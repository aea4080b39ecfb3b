"""Messages to a shop's service desk, written by a small grammar in British and in American English.

    message  → [greeting] subject [aside] [closing]
    subject  → a sentence of the message's topic, in which {item}, {place}, … are replaced by words
    aside    → "it is not about" and a noun of another topic

Every writer has one of two dialects, which call many things by other words (parcel and package), and writes
about a few topics mostly. So clients that are writers differ in labels and in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mnemos.common.rng import numpy_generator

DIALECTS = ("british", "american")

_WORDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "item": (
        ("jumper", "torch", "cooker", "hoover", "mobile", "trainers", "pushchair", "kettle", "wardrobe"),
        (
            "sweater",
            "flashlight",
            "stove",
            "vacuum",
            "cellphone",
            "sneakers",
            "stroller",
            "pitcher",
            "closet",
        ),
    ),
    "place": (
        ("flat", "shop", "high street", "car park"),
        ("apartment", "store", "main street", "parking lot"),
    ),
    "parcel": (("parcel", "post", "lorry", "postman"), ("package", "mail", "truck", "mailman")),
    "bill": (
        ("bill", "cheque", "pounds", "current account"),
        ("invoice", "check", "dollars", "checking account"),
    ),
    "refund": (("money back", "reimbursement"), ("refund", "store credit")),
    "login": (("pin", "postcode"), ("passcode", "zip code")),
    "broken": (("faulty", "knackered", "dodgy"), ("defective", "busted", "shot")),
    "cover": (("guarantee", "cover"), ("warranty", "protection plan")),
    "queue": (("queue", "till", "opening times"), ("line", "checkout", "store hours")),
    "lovely": (("lovely", "brilliant", "chuffed"), ("awesome", "great", "stoked")),
    "day": (("fortnight", "bank holiday", "autumn"), ("two weeks", "public holiday", "fall")),
}
"""What each dialect calls the things of the grammar: British, American."""

_TOPICS: dict[str, tuple[str, ...]] = {
    "delivery": (
        "my {parcel} with the {item} has not arrived at the {place} after a {day}",
        "where is the {parcel}, it was to come to my {place} before the {day}",
    ),
    "payment": (
        "you have charged the {bill} twice for one {item}",
        "the {bill} for my {item} shows a wrong amount since the {day}",
    ),
    "refund": (
        "i have sent the {item} back and want my {refund}",
        "a {day} has gone and the {refund} for the {item} is not there",
    ),
    "account": (
        "i can not sign in, my {login} is refused",
        "please change the {login} of my account, i have moved to another {place}",
    ),
    "repair": (
        "the {item} is {broken} and i need someone to mend it",
        "my {item} went {broken} after a {day}, can you fix it",
    ),
    "warranty": (
        "does the {cover} still hold for a {item} from last {day}",
        "how long is the {cover} of the {item}",
    ),
    "visit": (
        "the {queue} at your {place} was too long on the {day}",
        "what are the {queue} of the {place} on the {day}",
    ),
    "praise": (
        "the {item} is {lovely} and so was the man at the {place}",
        "i am {lovely} with my {item}, thank you",
    ),
}
_ASIDES = {
    "delivery": "parcel", "payment": "bill", "refund": "refund", "account": "login",
    "repair": "broken", "warranty": "cover", "visit": "queue", "praise": "lovely",
}  # fmt: skip
_GREETINGS = (("hello", "good morning", "dear all"), ("hi there", "hey", "good morning"))
_CLOSINGS = (("cheers", "kind regards", "ta"), ("thanks", "best", "have a good one"))

TOPICS = tuple(_TOPICS)
"""The classes."""


class Message(NamedTuple):
    """One message."""

    text: str
    label: str
    """Its topic."""
    owner: str
    """Its writer, named after the dialect."""


def messages(writers: int, each: int, alpha: float = 0.5, seed: int = 0) -> list[Message]:
    """`each` messages by each writer; writers take turns with the dialects.

    A writer's topics have shares from a Dirichlet distribution with concentration `alpha`.
    """
    return [message for writer in range(writers) for message in _writer(writer, each, alpha, seed)]


def _writer(writer: int, each: int, alpha: float, seed: int) -> list[Message]:
    draw = numpy_generator(seed, "messages", writer)
    dialect = writer % len(DIALECTS)
    shares = draw.dirichlet(np.full(len(TOPICS), alpha))
    name = f"{DIALECTS[dialect]}-{writer // len(DIALECTS):02d}"
    topics = [TOPICS[index] for index in draw.choice(len(TOPICS), size=each, p=shares)]
    return [Message(_message(topic, dialect, draw), topic, name) for topic in topics]


def _message(topic: str, dialect: int, draw: np.random.Generator) -> str:
    """One message of a topic: its sentence, and perhaps a greeting, an aside and a closing."""
    words = {name: _one(kinds[dialect], draw) for name, kinds in _WORDS.items()}
    parts = [_one(_TOPICS[topic], draw).format(**words)]
    if draw.random() < 0.5:
        other = _one([name for name in TOPICS if name != topic], draw)
        parts.append(f"it is not about {_one(_WORDS[_ASIDES[other]][dialect], draw)}")
    if draw.random() < 0.5:
        parts.insert(0, _one(_GREETINGS[dialect], draw))
    if draw.random() < 0.5:
        parts.append(_one(_CLOSINGS[dialect], draw))
    return ", ".join(parts)


def _one(choices: Sequence[str], draw: np.random.Generator) -> str:
    return choices[int(draw.integers(len(choices)))]
