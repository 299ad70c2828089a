"""The scripted judge of the demo's second act: an OpenAI-compatible endpoint with written replies.

It plays what a good judge model would answer, so that the whole method is seen without a model.
"""

import json
import re
import sys

from rectifier_core.testing.scripted_endpoint import ChatCall, Reply, ScriptedEndpoint

INDICATOR = re.compile(r"^(?P<number>\d+)\. (?P<name>[^:|\n]+)", re.MULTILINE)

# What the judge objects to: words of a message, words in the fitting indicator's name, the quote,
# the correction and what it changes.
OBJECTIONS = (
    (
        "The average of 6 and 3 hours is 4.5 hours",
        "RATE",
        "The average of 6 and 3 hours is 4.5 hours",
        "Add the rates: 1/6 + 1/3 = 1/2 of the tank per hour, so 2 hours.",
        "The answer becomes 2 hours instead of 4.5.",
    ),
    (
        "9 hours",
        "RATE",
        "9 hours",
        "Two pumps at once are faster than either: add the rates 1/6 + 1/3 = 1/2, so 2 hours.",
        "The answer becomes 2 hours instead of 9.",
    ),
    (
        "Nine hours",
        "RATE",
        "Nine hours",
        "Add the rates, not the times: 2 hours.",
        "The answer becomes 2 hours instead of 9.",
    ),
)


def judge(call: ChatCall) -> Reply:
    """Return the ballot that is written down for the message of ``call``."""
    names = {int(m["number"]): m["name"] for m in INDICATOR.finditer(call.user)}
    message = call.user.rsplit("DATA-", 2)[-2] if "DATA-" in call.user else call.user
    for words, fitting, evidence, correction, impact in OBJECTIONS:
        if words in message:
            number = next(
                (n for n, name in names.items() if fitting in name), max(names, default=1)
            )
            accusation = {
                "id": number,
                "evidence": evidence,
                "correction": correction,
                "impact": impact,
            }
            clean = [n for n in names if n != number][:1]
            return Reply.json({"clean": clean, "violated": [accusation]})
    return Reply.json({"clean": list(names)[:3], "violated": []})


def main() -> None:
    """Serve until SIGTERM, after printing the base URL as one JSON line."""

    def announce(base_url: str) -> None:
        sys.stdout.write(json.dumps({"base_url": base_url}) + "\n")
        sys.stdout.flush()

    ScriptedEndpoint(judge).serve(announce)


if __name__ == "__main__":
    main()
