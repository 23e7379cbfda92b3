"""The tool-calling part of the corpus: which tools exist and how people ask for them.

A request is drawn in two steps, first what the user wants and later, only if the sample shows it,
what the tool answered. The order of draws is part of the corpus.
"""

import json
from dataclasses import dataclass
from typing import Callable

from corpus_chat import pick
from corpus_words import CITIES, FOODS, NAMES, PLACES, THINGS


@dataclass(frozen=True)
class Request:
    """One use of a tool. `outcome` draws the tool's result and the assistant's closing sentence."""

    question: str
    arguments: dict
    outcome: Callable[[], tuple[dict, str]]


@dataclass(frozen=True)
class Tool:
    description: str
    parameters: dict  # name -> JSON type
    request: Callable

    def declaration(self, name):
        schema = {
            "type": "object",
            "properties": {key: {"type": kind} for key, kind in self.parameters.items()},
            "required": list(self.parameters),
        }
        function = {"name": name, "description": self.description, "parameters": schema}
        return {"type": "function", "function": function}


def _weather(rng):
    city = rng.choice(CITIES)
    question = pick(
        rng,
        f"What is the weather in {city}?",
        f"How is the weather in {city} today?",
        f"Is it raining in {city}?",
    )

    def outcome():
        degrees = rng.randint(-9, 39)
        sky = pick(rng, "sunny", "cloudy", "rainy", "windy")
        result = {"temperature": degrees, "sky": sky}
        return result, f"It is {degrees} degrees and {sky} in {city}."

    return Request(question, {"city": city}, outcome)


def _time(rng):
    city = rng.choice(CITIES)
    question = pick(rng, f"What time is it in {city}?", f"Tell me the time in {city}.")

    def outcome():
        time = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
        return {"time": time}, f"It is {time} in {city}."

    return Request(question, {"city": city}, outcome)


def _timer(rng):
    minutes = rng.randint(1, 90)
    question = pick(rng, f"Set a timer for {minutes} minutes.", f"Start a {minutes} minute timer.")
    closing = f"The timer is set for {minutes} minutes."
    return Request(question, {"minutes": minutes}, lambda: ({"ok": True}, closing))


def _mail(rng):
    name, subject = rng.choice(NAMES), rng.choice(THINGS)
    question = pick(
        rng, f"Send {name} a mail about the {subject}.", f"Mail {name} about the {subject}."
    )
    closing = f"I sent {name} a mail about the {subject}."
    arguments = {"to": name, "subject": subject}
    return Request(question, arguments, lambda: ({"sent": True}, closing))


def _calculation(rng):
    left, right = rng.randint(100, 999), rng.randint(100, 999)
    operator = pick(rng, "+", "-", "*")
    value = {"+": left + right, "-": left - right, "*": left * right}[operator]
    expression = f"{left} {operator} {right}"
    question = f"Use the calculator: {expression}"
    outcome = {"result": value}, f"The result is {value}."
    return Request(question, {"expression": expression}, lambda: outcome)


def _search(rng):
    item = rng.choice(THINGS)
    question = pick(rng, f"Where is the {item} stored?", f"Find the {item}.")

    def outcome():
        place = rng.choice(PLACES)
        return {"place": place}, f"The {item} is in the {place}."

    return Request(question, {"item": item}, outcome)


def _order(rng):
    food, count = rng.choice(FOODS), rng.randint(1, 12)
    question = pick(rng, f"Order {count} {food}.", f"Buy {count} {food} for me.")
    arguments = {"food": food, "count": count}
    return Request(question, arguments, lambda: ({"ok": True}, f"I ordered {count} {food}."))


TOOLS = {
    "get_weather": Tool("Get the weather in a city", {"city": "string"}, _weather),
    "get_time": Tool("Get the local time in a city", {"city": "string"}, _time),
    "set_timer": Tool("Start a timer", {"minutes": "integer"}, _timer),
    "send_mail": Tool("Send a mail", {"to": "string", "subject": "string"}, _mail),
    "calculator": Tool("Evaluate an expression", {"expression": "string"}, _calculation),
    "find_item": Tool("Find where an item is stored", {"item": "string"}, _search),
    "buy_food": Tool("Order food", {"food": "string", "count": "integer"}, _order),
}


def tool_chat(rng, without_tool):
    """A chat with tools on offer. Most use one; `without_tool` draws a question that needs none."""
    offered = rng.sample(list(TOOLS), rng.randint(1, 4))
    used = rng.choice(offered)
    request = TOOLS[used].request(rng)
    call = {"type": "function", "function": {"name": used, "arguments": request.arguments}}
    messages = [
        {"role": "user", "content": request.question},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    if rng.random() < 0.6:
        result, closing = request.outcome()
        messages.append({"role": "tool", "content": json.dumps(result)})
        messages.append({"role": "assistant", "content": closing})
    elif rng.random() < 0.1:
        messages = without_tool(rng)["messages"]
    declarations = [TOOLS[name].declaration(name) for name in offered]
    return {"messages": messages, "tools": declarations, "thinking": False}
