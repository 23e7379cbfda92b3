#!/usr/bin/env python3
"""What clients of llama-server rely on, as assertions about its HTTP API, counted against a server of ours.

    llama_server.py PROGRAM MODEL [--list]

Each assertion is a line of its own and says which it is when it does not hold. Exits with 1 where one of them fails that is not
among those we do not mean to keep (KNOWN), and with 77 where the program is missing.
"""
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

KNOWN = {
    "a system fingerprint begins with b": "ours names this program",
}
PROMPT = "Once upon a time"


class Server:
    def __init__(self, program, model):
        self.process = subprocess.Popen(
            [program, "serve", model, "--port", "0", "--ctx-size", "512", "--threads", "1", "--parallel", "2", "--alias", "demo",
             "--prefix-store", "off", "--no-profile"], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            ready = re.search(r"ready: .* at (http:\S+)/v1,", line)
            if ready:
                self.url = ready.group(1)
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        raise SystemExit("the server ended")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def ask(self, path, body=None, method=None, timeout=60):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method or ("POST" if data else "GET"),
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                status, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def stream(self, path, body):
        status, text = self.ask(path, {**body, "stream": True})
        events = [line[6:] for line in str(text).split("\n") if line.startswith("data: ")]
        return [json.loads(event) for event in events if event != "[DONE]"]


class Count:
    def __init__(self, show):
        self.show, self.held, self.failed = show, 0, []

    def __call__(self, name, holds):
        try:
            ok = bool(holds())
        except Exception as error:  # what is missing in an answer does not hold
            ok, name = False, name if name in KNOWN else f"{name} ({type(error).__name__}: {error})"
        self.held += ok
        if not ok:
            self.failed.append(name)
        if self.show or not ok:
            print(f"{'ok  ' if ok else 'FAIL'} {name}")


def is_list_of(kind, value):
    return isinstance(value, list) and all(isinstance(each, kind) for each in value)


def basic(server, check):
    check("health", lambda: server.ask("/health") == (200, {"status": "ok"}))
    _, props = server.ask("/props")
    check("props: total_slots", lambda: props["total_slots"] == 2)
    check("props: n_ctx", lambda: props["default_generation_settings"]["n_ctx"] == 512)
    check("props: seed among the parameters", lambda: "seed" in props["default_generation_settings"]["params"])
    check("props: n_predict among the parameters", lambda: "n_predict" in props["default_generation_settings"]["params"])
    check("props: model_path", lambda: isinstance(props["model_path"], str) and props["model_path"])
    check("props: model_alias", lambda: props["model_alias"] == "demo")
    check("props: chat_template", lambda: isinstance(props["chat_template"], str))
    check("props: modalities", lambda: props["modalities"]["vision"] is False and props["modalities"]["audio"] is False)
    check("props: bos_token and eos_token", lambda: isinstance(props["bos_token"], str) and props["eos_token"] == "<|im_end|>")
    check("props: build_info", lambda: isinstance(props["build_info"], str))
    check("props: is_sleeping", lambda: props["is_sleeping"] is False)
    _, models = server.ask("/models")
    check("models: one", lambda: len(models["data"]) == 1)
    check("models: by its alias", lambda: models["data"][0]["id"] == "demo")
    check("models: meta", lambda: {"n_params", "n_embd", "n_vocab", "size"} <= set(models["data"][0]["meta"]))
    _, slots = server.ask("/slots")
    check("slots: as many as there are", lambda: len(slots) == 2)
    check("slots: their context", lambda: slots[0]["n_ctx"] == 512)
    check("slots: free", lambda: slots[0]["is_processing"] is False and slots[0]["id"] == 0)
    check("slots: speculative", lambda: isinstance(slots[0]["speculative"], bool))
    check("slots: params are not shown", lambda: "params" not in slots[0])
    check("slots: fail_on_no_slot", lambda: server.ask("/slots?fail_on_no_slot=1")[0] == 200)
    check("metrics", lambda: server.ask("/metrics")[0] == 200)
    check("nothing there: 404 with an error", lambda: server.ask("/nothing")[0] == 404 and "error" in server.ask("/nothing")[1])
    check("no JSON: 400", lambda: server.ask("/completion", "text")[0] == 400)


def completion(server, check):
    ask = {"prompt": PROMPT, "n_predict": 8, "temperature": 0}
    status, body = server.ask("/completion", ask)
    check("completion: 200", lambda: status == 200)
    check("completion: content", lambda: isinstance(body["content"], str) and body["content"])
    check("completion: prompt_n", lambda: body["timings"]["prompt_n"] + body["timings"]["cache_n"] == body["tokens_evaluated"])
    check("completion: predicted_n", lambda: body["timings"]["predicted_n"] == 8)
    check("completion: timings per token", lambda: body["timings"]["predicted_per_token_ms"] >= 0
          and body["timings"]["prompt_per_token_ms"] >= 0)
    check("completion: truncated", lambda: body["truncated"] is False)
    check("completion: has_new_line", lambda: isinstance(body["has_new_line"], bool))
    check("completion: tokens only where asked for", lambda: body["tokens"] == [])
    check("completion: stop", lambda: body["stop"] is True)
    check("completion: stop_type", lambda: body["stop_type"] == "limit")
    check("completion: stopping_word", lambda: body["stopping_word"] == "")
    check("completion: tokens_predicted", lambda: body["tokens_predicted"] == 8)
    check("completion: tokens_cached", lambda: body["tokens_cached"] >= 8)
    check("completion: index and id_slot", lambda: body["index"] == 0 and isinstance(body["id_slot"], int))
    check("completion: model", lambda: body["model"] == "demo")
    check("completion: prompt", lambda: body["prompt"].endswith(PROMPT))
    check("completion: generation_settings", lambda: body["generation_settings"]["n_predict"] == 8)
    check("completion: all settings are named", lambda: {
        "temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", "seed", "samplers", "mirostat", "dry_multiplier",
        "adaptive_target", "adaptive_decay", "stop", "ignore_eos", "n_probs"} <= set(body["generation_settings"]))
    _, tokens = server.ask("/completion", {**ask, "return_tokens": True})
    check("completion: return_tokens", lambda: len(tokens["tokens"]) == 8 and is_list_of(int, tokens["tokens"]))
    _, seeded = server.ask("/completion", {**ask, "seed": 42})
    check("completion: the seed is said", lambda: seeded["generation_settings"]["seed"] == 42)
    _, word = server.ask("/completion", {**ask, "n_predict": 40, "stop": ["was"]})
    check("completion: a stop string ends it", lambda: word["stop_type"] == "word" and word["stopping_word"] == "was")
    check("completion: and is no part of it", lambda: "was" not in word["content"])
    _, cut = server.ask("/completion", {"prompt": PROMPT, "ignore_eos": True, "temperature": 0, "n_predict": 30})
    check("completion: ignore_eos", lambda: cut["tokens_predicted"] == 30)
    _, nothing = server.ask("/completion", {"prompt": PROMPT, "n_predict": 0})
    check("completion: n_predict 0 only reads", lambda: nothing["content"] == "" and nothing["tokens_predicted"] == 0)
    same = {server.ask("/completion", {**ask, "temperature": 1, "seed": 5})[1]["content"] for _ in range(3)}
    check("completion: the same seed, the same text", lambda: len(same) == 1)
    other = {server.ask("/completion", {**ask, "prompt": "The", "n_predict": 24, "temperature": 2, "top_k": 0, "top_p": 1.0,
                                        "seed": seed})[1]["content"] for seed in range(4)}
    check("completion: other seeds, other texts", lambda: len(other) > 1)
    check("completion: too long a prompt is refused", lambda: server.ask("/completion", {"prompt": PROMPT * 300})[0] == 400)
    check("completion: cache_prompt false gives the same",
          lambda: server.ask("/completion", {**ask, "cache_prompt": False})[1]["content"] == body["content"])


def forms(server, check):
    ask = {"n_predict": 6, "temperature": 0}
    ids = server.ask("/tokenize", {"content": PROMPT, "add_special": True})[1]["tokens"]
    content = lambda prompt: server.ask("/completion", {**ask, "prompt": prompt})[1]
    text = content(PROMPT)["content"]
    check("prompt: tokens", lambda: content(ids)["content"] == text)
    check("prompt: a batch", lambda: [each["content"] for each in content([ids, ids])] == [text, text])
    check("prompt: texts and tokens", lambda: [each["content"] for each in content([ids, PROMPT])] == [text, text])
    check("prompt: objects", lambda: content({"prompt_string": PROMPT})["content"] == text)
    check("prompt: objects and tokens", lambda: [e["content"] for e in content([ids, {"prompt_string": PROMPT}])] == [text, text])
    check("prompt: mixed in one", lambda: isinstance(content([1, 2, 3, PROMPT, 7, 8, PROMPT])["content"], str))
    check("prompt: images are refused", lambda: server.ask(
        "/completion", {**ask, "prompt": {"prompt_string": "<__media__>", "multimodal_data": ["aGk="]}})[0] == 400)
    fields = server.ask("/completion", {**ask, "prompt": PROMPT, "response_fields": ["content", "generation_settings/n_predict", "prompt"]})[1]
    check("response_fields: only those", lambda: set(fields) == {"content", "generation_settings/n_predict", "prompt"})
    check("response_fields: of a member", lambda: fields["generation_settings/n_predict"] == 6)
    check("response_fields: none means all", lambda: "generation_settings" in server.ask(
        "/completion", {**ask, "prompt": PROMPT, "response_fields": []})[1])
    check("n: several answers", lambda: len(server.ask("/completion", {**ask, "prompt": PROMPT, "n": 2})[1]) == 2)


def streams(server, check):
    ask = {"prompt": PROMPT, "n_predict": 8, "temperature": 0}
    chunks = server.stream("/completion", ask)
    whole = server.ask("/completion", ask)[1]["content"]
    check("stream: stop in every object", lambda: all(isinstance(each["stop"], bool) for each in chunks))
    check("stream: one last object", lambda: [each["stop"] for each in chunks].count(True) == 1 and chunks[-1]["stop"])
    check("stream: the same text", lambda: "".join(each["content"] for each in chunks) == whole)
    check("stream: tokens in each", lambda: all(each["tokens"] and is_list_of(int, each["tokens"]) for each in chunks[:-1]))
    check("stream: the last one says all", lambda: {"generation_settings", "timings", "stop_type", "truncated", "has_new_line",
                                                    "tokens_evaluated"} <= set(chunks[-1]))
    check("stream: timings only where asked for", lambda: not any("timings" in each for each in chunks[:-1]))
    timed = server.stream("/completion", {**ask, "timings_per_token": True})
    check("stream: timings_per_token", lambda: [e["timings"]["predicted_n"] for e in timed[:-1]] == list(range(1, 9)))
    progress = server.stream("/completion", {**ask, "return_progress": True, "prompt": PROMPT * 20})
    check("stream: prompt_progress", lambda: {"total", "cache", "processed", "time_ms"} == set(progress[0]["prompt_progress"]))
    check("stream: progress comes to its end", lambda: any(
        e.get("prompt_progress", {}).get("processed") == e.get("prompt_progress", {}).get("total", -1) for e in progress))
    probable = server.stream("/completion", {**ask, "n_probs": 3})
    check("stream: n_probs in each", lambda: all(len(e["completion_probabilities"]) == 1 for e in probable[:-1]))


def probabilities(server, check):
    ask = {"prompt": PROMPT, "n_predict": 5, "temperature": 0, "n_probs": 10}
    tokens = server.ask("/completion", ask)[1]["completion_probabilities"]
    check("n_probs: one for each token", lambda: len(tokens) == 5)
    check("n_probs: ids", lambda: all(each["id"] > 0 for each in tokens))
    check("n_probs: tokens", lambda: all(isinstance(each["token"], str) for each in tokens))
    check("n_probs: logprobs", lambda: all(each["logprob"] <= 0 for each in tokens))
    check("n_probs: bytes", lambda: all(bytes(each["bytes"]).decode() == each["token"] for each in tokens))
    check("n_probs: as many alternatives", lambda: all(len(each["top_logprobs"]) == 10 for each in tokens))
    check("n_probs: with all of it", lambda: all({"id", "token", "bytes", "logprob"} <= set(t) for e in tokens for t in e["top_logprobs"]))
    drawn = server.ask("/completion", {**ask, "prompt": "The", "post_sampling_probs": True, "temperature": 1})[1].get("completion_probabilities")
    check("post_sampling_probs: one for each token", lambda: len(drawn) == 5)
    check("post_sampling_probs: are probabilities", lambda: all(0 < p["prob"] <= 1 for t in drawn for p in [t, *t["top_probs"]]))
    check("post_sampling_probs: fewer only where they are all", lambda: all(
        len(t["top_probs"]) == 10 or abs(sum(p["prob"] for p in t["top_probs"]) - 1) < 1e-4 for t in drawn))
    first = tokens[0]
    for name, bias in {"pairs of ids": [[first["id"], -100]], "pairs of texts": [[first["token"], -100]],
                       "a map of ids": {str(first["id"]): -100}, "a map of texts": {first["token"]: -100},
                       "false": [[first["id"], False]]}.items():
        check(f"logit_bias: {name}", lambda bias=bias: not server.ask(
            "/completion", {**ask, "n_probs": 0, "logit_bias": bias})[1]["content"].startswith(first["token"]))


def grammars(server, check):
    ask = {"messages": [{"role": "user", "content": "Say anything."}], "max_tokens": 10, "reasoning_effort": "none"}
    said = lambda more: server.ask("/chat/completions", {**ask, **more})[1]["choices"][0]["message"]["content"]
    check("grammar: in a chat", lambda: said({"grammar": 'root ::= "a"{5,5}'}) == "aaaaa")
    check("grammar: in a completion", lambda: server.ask(
        "/completion", {"prompt": "x", "n_predict": 10, "grammar": 'root ::= "a"{5,5}'})[1]["content"] == "aaaaa")
    check("grammar: a bad one is refused", lambda: server.ask("/chat/completions", {**ask, "grammar": "root ::= this is (not"})[0] == 400)
    check("json_schema: const", lambda: said({"json_schema": {"const": "42"}}) == '"42"')
    check("json_schema: in a completion", lambda: server.ask(
        "/completion", {"prompt": "x", "n_predict": 10, "json_schema": {"const": "42"}})[1]["content"] == '"42"')
    check("response_format: json_object with a schema", lambda: said({"response_format": {"type": "json_object", "schema": {"const": "42"}}}) == '"42"')
    check("response_format: json_schema", lambda: said(
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"const": "foo"}}}}) == '"foo"')
    for name, form in {"unknown": {"type": "sound"}, "a schema that is none": {"type": "json_object", "schema": 123}}.items():
        check(f"response_format: {name}: 400", lambda form=form: server.ask("/chat/completions", {**ask, "response_format": form})[0] == 400)


def chats(server, check):
    user = [{"role": "user", "content": "What is 12 + 30?"}]
    ask = {"messages": user, "max_tokens": 8, "temperature": 0, "reasoning_effort": "none"}
    _, body = server.ask("/chat/completions", ask)
    check("chat: its id", lambda: "cmpl" in body["id"])
    check("chat: usage", lambda: body["usage"]["completion_tokens"] == 8 and body["usage"]["prompt_tokens"] > 8)
    check("chat: the role", lambda: body["choices"][0]["message"]["role"] == "assistant")
    check("chat: finish_reason", lambda: body["choices"][0]["finish_reason"] == "length")
    check("chat: timings", lambda: body["timings"]["predicted_n"] == 8)
    check("chat: cached tokens", lambda: server.ask("/chat/completions", ask)[1]["usage"]["prompt_tokens_details"]["cached_tokens"] > 0)
    check("a system fingerprint begins with b", lambda: body["system_fingerprint"].startswith("b"))
    chunks = server.stream("/chat/completions", {**ask, "stream_options": {"include_usage": True}, "timings_per_token": True})
    check("chat stream: the role first", lambda: chunks[0]["choices"][0]["delta"]["role"] == "assistant")
    check("chat stream: no timings in the first", lambda: "timings" not in chunks[0])
    check("chat stream: and the role once", lambda: not any("role" in c["delta"] for e in chunks[1:] for c in e["choices"]))
    check("chat stream: one id", lambda: len({each["id"] for each in chunks}) == 1)
    check("chat stream: usage in the last", lambda: chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == 8)
    check("chat stream: timings in the last", lambda: chunks[-1]["timings"]["predicted_n"] <= 10)
    begun = user + [{"role": "assistant", "content": "12 + 30"}]
    prompt = lambda more: server.ask("/apply-template", {"messages": begun, **more})[1]["prompt"]
    check("prefill: the answer goes on", lambda: server.ask(
        "/chat/completions", {**ask, "messages": begun})[1]["choices"][0]["message"]["content"] == " = 42")
    check("prefill: the template ends there", lambda: prompt({}).endswith("12 + 30"))
    check("prefill: continue_final_message", lambda: prompt({"continue_final_message": True, "add_generation_prompt": False}) == prompt({}))
    check("prefill: not with a generation prompt", lambda: server.ask(
        "/chat/completions", {**ask, "messages": begun, "add_generation_prompt": True, "continue_final_message": True})[0] == 400)
    for name, messages in {"none": None, "a text": "string", "numbers": [123], "nothing": [{}], "a role that is none": [{"role": 123}],
                           "content that is none": [{"role": "system", "content": 123}]}.items():
        check(f"messages: {name}: 400", lambda messages=messages: server.ask("/chat/completions", {"messages": messages})[0] == 400)
    logprobs = server.ask("/chat/completions", {**ask, "logprobs": True, "top_logprobs": 5})[1]["choices"][0]
    check("chat logprobs: the text", lambda: "".join(t["token"] for t in logprobs["logprobs"]["content"]) == logprobs["message"]["content"])
    check("chat logprobs: of each", lambda: all(t["logprob"] <= 0 and t["bytes"] and t["top_logprobs"] for t in logprobs["logprobs"]["content"]))
    check("input_tokens", lambda: server.ask("/v1/chat/completions/input_tokens", ask)[1]["input_tokens"] == body["usage"]["prompt_tokens"])


def others(server, check):
    text = "What is the capital of France ?"
    ids = server.ask("/tokenize", {"content": text})[1]["tokens"]
    check("tokenize", lambda: len(ids) > 5)
    check("detokenize", lambda: server.ask("/detokenize", {"tokens": ids})[1]["content"].strip() == text)
    pieces = server.ask("/tokenize", {"content": "unicode \u5abd and \U0001F917", "with_pieces": True})[1]["tokens"]
    check("tokenize: pieces", lambda: all(each["id"] > 0 and len(each["piece"]) > 0 for each in pieces))
    check("tokenize: texts and tokens", lambda: server.ask("/tokenize", {"content": [text, ids[0]]})[1]["tokens"] == ids + ids[:1])
    infill = {"input_prefix": "a", "input_suffix": "b"}
    check("infill: refused by a model without tokens for it", lambda: server.ask("/infill", infill)[0] == 501)
    for name, extra in {"no text": {}, "a number": {"filename": 1, "text": "a"}}.items():
        check(f"infill: input_extra with {name}: 400", lambda extra=extra: server.ask("/infill", {**infill, "input_extra": [extra]})[0] == 400)
    embed = lambda body: server.ask("/v1/embeddings", body)
    one = embed({"input": text})[1]
    check("embeddings: one", lambda: len(one["data"]) == 1 and len(one["data"][0]["embedding"]) > 1)
    check("embeddings: of length 1", lambda: abs(sum(x * x for x in one["data"][0]["embedding"]) - 1) < 1e-3)
    check("embeddings: several", lambda: len(embed({"input": ["a", "b", "c", "d"]})[1]["data"]) == 4)
    for name, given in {"tokens": [12, 34], "mixed": [12, "text", 34], "lists": [[12, 34], [56]], "texts and lists": ["a", [12]]}.items():
        check(f"embeddings: {name}", lambda given=given: embed({"input": given})[0] == 200)
    check("embeddings: the same twice", lambda: (lambda d: d[0]["embedding"] == d[1]["embedding"])(embed({"input": ["a", "a"]})[1]["data"]))
    check("embeddings: usage", lambda: one["usage"]["prompt_tokens"] == one["usage"]["total_tokens"] == len(ids))
    check("embeddings: base64", lambda: isinstance(embed({"input": "a", "encoding_format": "base64"})[1]["data"][0]["embedding"], str))
    check("embeddings: too long", lambda: embed({"input": "This is a test " * 512})[0] == 400)
    documents = ["The capital of France is Paris.", "A frog."]
    ranked = server.ask("/rerank", {"query": text, "documents": documents})[1]
    check("rerank: all", lambda: sorted(each["index"] for each in ranked["results"]) == [0, 1])
    check("rerank: in their order", lambda: ranked["results"][0]["relevance_score"] >= ranked["results"][1]["relevance_score"])
    check("rerank: usage", lambda: ranked["usage"]["prompt_tokens"] == ranked["usage"]["total_tokens"] > 0)
    check("rerank: texts", lambda: len(server.ask("/rerank", {"query": text, "texts": documents})[1]) == 2)
    check("rerank: top_n", lambda: len(server.ask("/rerank", {"query": text, "documents": documents, "top_n": 1})[1]["results"]) == 1)
    for name, given in {"none": [], "null": None, "a number": 123, "numbers": [1, 2]}.items():
        check(f"rerank: documents: {name}: 400", lambda given=given: server.ask("/rerank", {"query": text, "documents": given})[0] == 400)
    results = []
    threads = [threading.Thread(target=lambda: results.append(server.ask(
        "/completion", {"prompt": PROMPT, "n_predict": 20, "seed": 42})[0])) for _ in range(6)]
    [each.start() for each in threads]
    [each.join() for each in threads]
    check("six at once", lambda: results == [200] * 6)
    check("and all are free again", lambda: not any(each["is_processing"] for each in server.ask("/slots")[1]))


def main():
    if len(sys.argv) < 3 or not os.access(sys.argv[1], os.X_OK):
        print("SKIP: there is no program to run")
        return 77
    server, check = Server(sys.argv[1], sys.argv[2]), Count("--list" in sys.argv)
    try:
        for part in (basic, completion, forms, streams, probabilities, grammars, chats, others):
            try:
                part(server, check)
            except Exception as error:  # what it begins with is not there
                check(f"{part.__name__} ({type(error).__name__}: {error})", lambda: False)
    finally:
        server.stop()
    unknown = [name for name in check.failed if name not in KNOWN]
    print(f"{check.held} of {check.held + len(check.failed)} hold; {len(check.failed) - len(unknown)} are not meant to")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
