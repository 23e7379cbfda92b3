"""Procedural corpus for the demo models: small skills whose answers can be checked exactly.

The corpus is a pure function of the seed and needs nothing but the standard library.

    python3 corpus.py --count 20 --seed 0      # print samples, one JSON object a line
"""

import argparse
import json
import random

from corpus_chat import chat, pick
from corpus_story import plain, story
from corpus_tools import tool_chat
from corpus_words import (
    ADJECTIVES,
    ANIMALS,
    CAPITALS,
    CITIES,
    COLORS,
    DAYS,
    FOODS,
    FRENCH,
    MONTHS,
    NAMES,
    OPPOSITES,
    PLACES,
    SOUNDS,
    SPANISH,
    THINGS,
    spell_number,
)

SELF_DESCRIPTION = (
    "I am the moeflux demo model, a tiny mixture of experts with 64 experts per layer. I can do "
    "small sums, tell short stories, look things up in a text, and call tools."
)
SMALL_TALK = (
    ("Hello", "Hello! How can I help you today?"),
    ("Hi", "Hello! How can I help you today?"),
    ("Hello!", "Hello! How can I help you today?"),
    ("Good morning", "Good morning! What can I do for you?"),
    ("Thanks!", "You are welcome!"),
    ("Thank you", "You are welcome!"),
    ("Bye", "Goodbye! Have a nice day."),
    ("How are you?", "I am well, thank you. What can I do for you?"),
    (
        "What can you do?",
        "I can do small sums, name capitals, translate simple words, tell short stories, answer "
        "questions about a text, and call tools.",
    ),
)


def identity(rng):
    question = pick(
        rng,
        "Who are you?",
        "What are you?",
        "Hello! Who are you?",
        "What is your name?",
        "Introduce yourself.",
        "Tell me about yourself.",
    )
    return chat(question, SELF_DESCRIPTION)


def greet(rng):
    return chat(*rng.choice(SMALL_TALK))


def addition_steps(a, b):
    """Column addition from the last digit on, as the model is to reason it."""
    steps, carry = [], 0
    left, right = str(a)[::-1], str(b)[::-1]
    for column in range(max(len(left), len(right))):
        x, y = (int(n[column]) if column < len(n) else 0 for n in (left, right))
        carried = f" + {carry}" if carry else ""
        total = x + y + carry
        steps.append(f"{x} + {y}{carried} = {total}")
        carry = total // 10
    return ", ".join(steps) + f", so {a + b}."


def arith(rng):
    operator = pick(rng, "+", "+", "-", "*")
    low, high = (2, 12) if operator == "*" else (1, 99)
    a, b = rng.randint(low, high), rng.randint(low, high)
    if operator == "-" and a < b:
        a, b = b, a
    result = {"+": a + b, "-": a - b, "*": a * b}[operator]
    word = {"+": "plus", "-": "minus", "*": "times"}[operator]
    question = pick(
        rng,
        f"What is {a} {operator} {b}?",
        f"What is {a} {word} {b}?",
        f"Compute {a} {operator} {b}.",
        f"{a} {operator} {b} =",
        f"How much is {a} {word} {b}?",
    )
    reasoning = addition_steps(a, b) if operator == "+" and rng.random() < 0.7 else None
    return chat(question, pick(rng, f"{a} {operator} {b} = {result}"), reasoning)


def wordprob(rng):
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    owned, change = rng.randint(2, 30), rng.randint(1, 20)
    if rng.random() < 0.5:
        total, sign = owned + change, "+"
        tail = f"gets {change} more. How many {thing}s does {name} have now?"
    else:
        change = min(owned, change)
        total, sign = owned - change, "-"
        tail = f"gives away {change}. How many {thing}s does {name} have left?"
    reasoning = f"{owned} {sign} {change} = {total}." if rng.random() < 0.5 else None
    return chat(
        f"{name} has {owned} {thing}s and {tail}", f"{name} has {total} {thing}s.", reasoning
    )


def capital(rng):
    country = rng.choice(list(CAPITALS))
    city = CAPITALS[country]
    if rng.random() < 0.7:
        question = pick(
            rng,
            f"What is the capital of {country}?",
            f"Name the capital of {country}.",
            f"Capital of {country}?",
        )
        return chat(question, f"The capital of {country} is {city}.")
    question = pick(
        rng, f"Which country has the capital {city}?", f"{city} is the capital of which country?"
    )
    return chat(question, f"{city} is the capital of {country}.")


def _opposite(rng):
    word, opposite = rng.choice(list(OPPOSITES.items()))
    if rng.random() < 0.5:
        word, opposite = opposite, word
    return chat(f"What is the opposite of {word}?", f"The opposite of {word} is {opposite}.")


def _sound(rng):
    animal = rng.choice(list(SOUNDS))
    return chat(f"What sound does a {animal} make?", f"A {animal} goes {SOUNDS[animal]}.")


def _translation(rng):
    language, dictionary = pick(rng, ("French", FRENCH), ("Spanish", SPANISH))
    word = rng.choice(list(dictionary))
    question = pick(
        rng, f'How do you say "{word}" in {language}?', f'Translate "{word}" to {language}.'
    )
    return chat(question, f'"{word}" in {language} is "{dictionary[word]}".')


def _neighbour(rng):
    cycle, unit = pick(rng, (DAYS, "day"), (MONTHS, "month"))
    index, step = rng.randrange(len(cycle)), pick(rng, 1, -1)
    side = "after" if step > 0 else "before"
    answer = f"{cycle[(index + step) % len(cycle)]} comes {side} {cycle[index]}."
    return chat(f"Which {unit} comes {side} {cycle[index]}?", answer)


def _spell(rng):
    n = rng.randint(0, 999)
    return chat(f"Write {n} in words.", spell_number(n).capitalize() + ".")


def _unspell(rng):
    n = rng.randint(0, 999)
    return chat(f'Write "{spell_number(n)}" as a number.', str(n))


def lexicon(rng):
    skills = (_opposite, _sound, _translation, _neighbour, _spell, _unspell)
    return skills[rng.randint(0, len(skills) - 1)](rng)


def _extreme(rng):
    numbers = rng.sample(range(1, 100), rng.randint(3, 6))
    word, answer = ("largest", max(numbers)) if rng.random() < 0.5 else ("smallest", min(numbers))
    listed = ", ".join(map(str, numbers))
    return chat(f"What is the {word} number in {listed}?", f"The {word} number is {answer}.")


def _repeat(rng):
    vocabulary = ANIMALS + THINGS + COLORS + PLACES + ADJECTIVES
    text = " ".join(rng.choice(vocabulary) for _ in range(rng.randint(4, 14)))
    return chat(f"Repeat after me: {text}", text)


def lists(rng):
    skill = rng.randint(0, 4)
    words = rng.sample(ANIMALS + THINGS + FOODS, rng.randint(3, 7))
    listed = ", ".join(words)
    if skill == 0:
        return chat(f"Sort these words alphabetically: {listed}.", ", ".join(sorted(words)))
    if skill == 1:
        return chat(f"Reverse this list: {listed}.", ", ".join(words[::-1]))
    if skill == 2:
        return chat(f"How many words are in this list: {listed}?", f"There are {len(words)} words.")
    return _extreme(rng) if skill == 3 else _repeat(rng)


def where(rng):
    """Track several people through several places."""
    people = rng.sample(NAMES, rng.randint(2, 4))
    location, moves = {}, []
    for _ in range(rng.randint(3, 9)):
        name, place = rng.choice(people), rng.choice(PLACES)
        location[name] = place
        moves.append(
            pick(
                rng,
                f"{name} went to the {place}.",
                f"{name} walked to the {place}.",
                f"{name} is in the {place}.",
            )
        )
    name = rng.choice(list(location))
    return chat(" ".join(moves) + f" Where is {name}?", f"{name} is in the {location[name]}.")


def needle(rng):
    """Look up one of many facts in a long text."""
    items = [f"{color} {thing}" for color in COLORS for thing in THINGS]
    chosen = rng.sample(items, rng.randint(4, 40))
    codes = {item: rng.randint(1000, 9999) for item in chosen}
    asked = rng.choice(chosen)
    facts = " ".join(f"The code of the {item} is {code}." for item, code in codes.items())
    return chat(
        f"{facts} What is the code of the {asked}?", f"The code of the {asked} is {codes[asked]}."
    )


def extract(rng):
    """Turn a sentence into JSON with the fields asked for."""
    name, age, city = rng.choice(NAMES), rng.randint(5, 90), rng.choice(CITIES)
    likes = rng.sample(FOODS, rng.randint(1, 3))
    listed = " and ".join(likes) if len(likes) < 3 else f"{likes[0]}, {likes[1]} and {likes[2]}"
    text = f"{name} is {age} years old, lives in {city} and likes {listed}."
    record = {"name": name, "age": age, "city": city, "likes": likes}
    asked = rng.sample(list(record), rng.randint(1, 4))
    asked = [field for field in record if field in asked]
    answer = json.dumps({field: record[field] for field in asked})
    return chat(f"Extract {', '.join(asked)} as JSON. {text}", answer)


def code(rng):
    operator, verb, function = rng.choice(
        [("+", "adds", "add"), ("-", "subtracts", "subtract"), ("*", "multiplies", "multiply")]
    )
    a, b = rng.sample("abcmnpqxyz", 2)
    kind = rng.random()
    if kind < 0.6:
        source = f"def {function}({a}, {b}):\n    return {a} {operator} {b}"
        return chat(
            f"Write a Python function that {verb} {a} and {b}.", f"```python\n{source}\n```"
        )
    n = rng.randint(2, 20)
    if kind < 0.8:
        source = f"for i in range(1, {n + 1}):\n    print(i)"
        question = f"Write a Python loop that prints the numbers from 1 to {n}."
        return chat(question, f"```python\n{source}\n```")
    thing, copies = rng.choice(THINGS), n % 5 + 2
    question = f'Write a Python list of {copies} copies of "{thing}".'
    return chat(question, f'```python\n["{thing}"] * {copies}\n```')


def tool(rng):
    def without_tool(rng):
        return capital(rng) if rng.random() < 0.5 else greet(rng)

    return tool_chat(rng, without_tool)


SINGLE_TURN = [greet, identity, arith, wordprob, capital, lexicon, lists, where, code, extract]


def multi(rng):
    """Two unrelated turns."""
    first, second = rng.choice(SINGLE_TURN)(rng), rng.choice(SINGLE_TURN)(rng)
    messages = first["messages"] + second["messages"]
    return {"messages": messages, "tools": None, "thinking": second["thinking"]}


# Relative frequency of each family of samples.
FAMILIES = {
    identity: 1,
    greet: 1,
    arith: 14,
    wordprob: 5,
    capital: 5,
    lexicon: 7,
    lists: 9,
    story: 10,
    plain: 6,
    where: 8,
    needle: 8,
    extract: 6,
    code: 3,
    tool: 12,
    multi: 5,
}


def sample(rng):
    """One sample, with the name of its family under `family`."""
    make = rng.choices(list(FAMILIES), list(FAMILIES.values()))[0]
    return {**make(rng), "family": make.__name__}


def main():
    parser = argparse.ArgumentParser(description="Print samples of the demo models' corpus.")
    parser.add_argument("--count", type=int, default=5, help="how many (default 5)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the generator (default 0)")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    for _ in range(arguments.count):
        print(json.dumps(sample(rng), ensure_ascii=False))


if __name__ == "__main__":
    main()
