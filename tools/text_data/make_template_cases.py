"""Render the chat templates of the tests with Jinja2, configured as transformers configures it.

    python3 make_template_cases.py ../../tests/data/templates
    python3 make_template_cases.py FOLDER --released

Reads every *.jinja of the folder and the template of the bundled model; writes cases.jsonl.xz there:
one template and chat a line, with `rendered` or `error`. With --released the bundled model is left
out, templates are compiled by transformers itself where it is installed, and cases.jsonl is plain:
the test ReleasedTemplates reads such a folder. Needs the Python package Jinja2 (3.1).
"""

import argparse
import datetime
import json
import lzma
from pathlib import Path

from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2026, 2, 3, 4, 5, 6)  # a Tuesday
DEMO = Path(__file__).resolve().parent.parent.parent / "models/demo/chat_template.jinja"


class Generation(Extension):
    """{% generation %}: renders what it holds."""

    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def raise_exception(message):
    raise TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def environment():
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = NOW.strftime
    return made


def compiler(released):
    """From the text of a template to the compiled one."""
    if released:
        try:
            from transformers.utils.chat_template_utils import _compile_jinja_template
        except ImportError:
            print("transformers is not installed: the environment of this file is used")
        else:

            def compiled(text):
                template = _compile_jinja_template(text)
                template.globals["strftime_now"] = NOW.strftime
                return template

            return compiled
    return environment().from_string


def said(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, number=1, **arguments):
    function = {"name": name, "arguments": arguments}
    return {"id": f"call{number:05d}", "type": "function", "function": function}


def result(content, number=1, name="weather"):
    return said("tool", content, tool_call_id=f"call{number:05d}", name=name)


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a place, été \"comme\" hiver.",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "Town, or <region> & land"},
                    "unit": {"type": "string", "enum": ["celsius", "kelvin"], "default": "celsius"},
                    "days": {"type": "array", "items": {"type": "integer"}},
                    "exact": {"type": ["boolean", "null"]},
                },
                "required": ["place"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "now",
            "description": "The time.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
]
KINDS = [  # schemas and values of every kind
    {
        "type": "function",
        "function": {
            "name": "plan",
            "description": "Plans.\nOn two lines.",
            "parameters": {
                "type": "object",
                "properties": {
                    "steps": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {"name": {"type": "string"}, "cost": {"type": "number"}},
                            "required": ["name"],
                        },
                        "description": "What to do",
                    },
                    "names": {"type": "array", "items": {"type": "string"}, "nullable": True},
                    "way": {"oneOf": [{"type": "string", "description": "a word"}, {"type": "integer"}]},
                    "where": {"type": "object", "properties": {"x": {"type": "number", "default": 0.5}}},
                    "anything": {},
                    "sure": {"type": "boolean", "default": False, "description": "or not"},
                    "note": {"type": "string", "nullable": True, "default": "none"},
                },
                "required": ["steps", "where"],
            },
            "response": {"type": "object", "description": "A plan."},
        },
    },
    *TOOLS,
]
ALL_KINDS = {
    "steps": [{"name": "a", "cost": 1.5}, {"name": "\u00fc\"\\"}],
    "names": [],
    "way": 3,
    "where": {"x": -0.25, "y": None, "deep": {"z": [True, [1, 2.0, 1e20]]}},
    "anything": None,
    "sure": True,
    "note": "one\ntwo </tool_call> <b>",
}
ASK = said("user", "How is the weather in Łódź?")
CALL = said("assistant", "", tool_calls=[call("weather", place="Łódź", days=[1, 2], exact=True)])
TWO_CALLS = said(
    "assistant",
    "Let me look.",
    tool_calls=[call("weather", place='a "b"\nc'), call("now", 2)],
)
PICTURE = [{"type": "text", "text": "What is this? "}, {"type": "image", "image": "x.png"}]
PARTS = [{"type": "text", "text": "One, "}, {"type": "text", "text": "two."}]

CASES = {
    "plain": {"messages": [said("user", "Hello")]},
    "system": {"messages": [said("system", "Be terse.  \n"), said("user", "  Hi there \n")]},
    "developer": {"messages": [said("developer", "Be terse."), said("user", "Hi")]},
    "think": {"messages": [said("user", "2+2?")], "enable_thinking": True, "thinking": True},
    "no-think": {"messages": [said("user", "2+2?")], "enable_thinking": False, "thinking": False},
    "turns": {
        "messages": [
            said("user", "One"),
            said("assistant", "Two"),
            said("user", "Three"),
            said("assistant", "Four\n\n"),
            said("user", "Five"),
        ]
    },
    "thoughts": {
        "messages": [
            said("user", "One"),
            said("assistant", "Two", reasoning_content="\nFirst thought.\n"),
            said("user", "Three"),
            said("assistant", "Four", reasoning_content="Second thought."),
        ],
        "add_generation_prompt": False,
    },
    "thoughts-in-text": {
        "messages": [
            said("user", "One"),
            said("assistant", "<think>\nHm.\n</think>\n\nTwo"),
            said("user", "Three"),
            said("assistant", "<think>\nHm, </think> again.</think>Four"),
        ],
        "add_generation_prompt": False,
    },
    "tools": {"messages": [ASK], "tools": TOOLS},
    "tools-system": {"messages": [said("system", "Be kind."), ASK], "tools": TOOLS},
    "call": {"messages": [ASK, CALL, result('{"sky": "grey"}')], "tools": TOOLS},
    "call-thought": {
        "messages": [ASK, {**CALL, "reasoning_content": "I must look."}, result("grey")],
        "tools": TOOLS,
    },
    "call-last": {"messages": [ASK, CALL], "tools": TOOLS, "add_generation_prompt": False},
    "two-calls": {
        "messages": [ASK, TWO_CALLS, result("grey"), result("noon", 2, "now")],
        "tools": TOOLS,
    },
    "call-and-answer": {
        "messages": [
            ASK,
            CALL,
            result("grey"),
            said("assistant", "It is grey.", reasoning_content="Say it."),
            said("user", "Thanks"),
        ],
        "tools": TOOLS,
    },
    "arguments-as-text": {
        "messages": [
            ASK,
            said(
                "assistant",
                "",
                tool_calls=[
                    {
                        "id": "call00001",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"place": "Łódź"}'},
                    }
                ],
            ),
        ],
        "tools": TOOLS,
    },
    "short-id": {
        "messages": [ASK, said("assistant", "", tool_calls=[{**call("now"), "id": "x"}])],
        "tools": TOOLS,
    },
    "null-content": {
        "messages": [ASK, {**CALL, "content": None}, result("grey")],
        "tools": TOOLS,
    },
    "parts": {"messages": [said("user", PARTS)]},
    "picture": {"messages": [said("user", PICTURE)], "add_vision_id": True},
    "result-parts": {"messages": [ASK, CALL, result(PARTS)], "tools": TOOLS},
    "no-prompt": {
        "messages": [said("user", "One"), said("assistant", "Two")],
        "add_generation_prompt": False,
    },
    "late-system": {
        "messages": [said("user", "One"), said("assistant", "Two"), said("system", "Now rhyme.")]
    },
    "two-users": {"messages": [said("user", "One"), said("user", "Two")]},
    "unknown-role": {"messages": [said("user", "One"), said("narrator", "Then")]},
    "result-first": {"messages": [result("grey"), said("user", "So?")]},
    "empty": {"messages": []},
    "control-tokens": {
        "messages": [said("user", "<|im_end|>\n<|im_start|>system\n<｜User｜>[INST]<think>x</think>")]
    },
    "unicode": {"messages": [said("user", "  \u00a0日本語 e\u0301 😀 \u2028 <b>&amp;</b> \\n {{ x }} ")]},
    "date": {"messages": [said("user", "Day?")], "date_string": "3 Mar 2026", "reasoning_effort": "high"},
    "kinds": {
        "messages": [said("user", "Plan"), said("assistant", "", tool_calls=[call("plan", **ALL_KINDS)])],
        "tools": KINDS,
    },
    "thinking-field": {
        "messages": [
            said("user", "One"),
            said("assistant", "Two", thinking="First."),
            ASK,
            {**CALL, "thinking": "I must look."},
            result("grey"),
        ],
        "tools": TOOLS,
    },
    "thinking-field-last": {
        "messages": [said("user", "One"), said("assistant", "Two", thinking="First.")],
        "add_generation_prompt": False,
    },
    "call-text-thought": {
        "messages": [ASK, {**TWO_CALLS, "reasoning_content": "Hm.", "thinking": "Hm."}, result("grey")],
        "tools": TOOLS,
    },
    "rounds": {
        "messages": [
            ASK,
            {**CALL, "reasoning_content": "One."},
            result("grey"),
            {**CALL, "reasoning_content": "Two.", "content": "Once more."},
            result({"sky": ["grey", None], "n": 1.0}),
        ],
        "tools": TOOLS,
    },
    "kept-thoughts": {
        "messages": [
            said("user", "One"),
            said("assistant", "Two", reasoning_content=" First. "),
            said("user", "Three/nothink"),
        ],
        "clear_thinking": False,
        "drop_thinking": False,
        "preserve_thinking": True,
        "enable_thinking": True,
        "thinking": True,
    },
    "effort-max": {"messages": [said("user", "Hard")], "reasoning_effort": "max", "thinking": True},
    "built-in": {
        "messages": [ASK, said("assistant", "", tool_calls=[call("weather", place="Rome")])],
        "builtin_tools": ["interpreter", "weather", "browser", "python"],
        "tools_in_user_message": False,
        "custom_tools": TOOLS[1:],
    },
}


def cases(folder, released):
    compiled = compiler(released)
    for path in [*sorted(folder.glob("*.jinja")), *([] if released else [DEMO])]:
        template = compiled(path.read_text())
        name = "demo" if path == DEMO else path.stem
        for label, given in CASES.items():
            basic = {"add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"}
            variables = {**basic, "tools": None, **given}
            line = {"template": name, "case": label, "input": variables}
            try:
                line["rendered"] = template.render(**variables)
            except TemplateError as error:
                line["error"], line["raised"] = str(error), type(error) is TemplateError
            except Exception as error:  # Python's own, for values a template cannot use
                line["error"], line["raised"] = f"{type(error).__name__}: {error}", False
            yield line


def main():
    parser = argparse.ArgumentParser(description="Render the templates of the tests.")
    parser.add_argument("folder", type=Path, help="where the templates are")
    parser.add_argument("--released", action="store_true", help="a folder of other templates")
    arguments = parser.parse_args()
    folder = arguments.folder
    lines = list(cases(folder, arguments.released))
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    if arguments.released:
        (folder / "cases.jsonl").write_text(text)
    else:
        (folder / "cases.jsonl.xz").write_bytes(lzma.compress(text.encode(), preset=9))
    refused = sum("error" in line for line in lines)
    print(f"{len(lines)} cases, of which {refused} are refused")


if __name__ == "__main__":
    main()
