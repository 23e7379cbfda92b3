"""What all skills of the corpus share: the shape of a sample, and drawing from alternatives.

A sample is a dict. A chat has `messages`, `tools` (declarations or None) and `thinking` (whether
the last answer was reasoned about); a plain text has `text`.
"""


def chat(question, answer, reasoning=None):
    """A sample of one question and its answer."""
    reply = {"role": "assistant", "content": answer}
    if reasoning:
        reply["reasoning_content"] = reasoning
    messages = [{"role": "user", "content": question}, reply]
    return {"messages": messages, "tools": None, "thinking": reasoning is not None}


def pick(rng, *alternatives):
    return rng.choice(alternatives)
