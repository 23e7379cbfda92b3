"""Answers, goldens and perplexity of an exported demo model, by transformers in float32."""

import math
import random

import corpus
import torch
from dataset import stop_ids, template_of

ANSWER_LIMIT = 160  # tokens
PERPLEXITY_LIMIT = 512  # tokens of each held-out text


def use_exact_float32():
    """Goldens must not depend on the reduced precision that training allows."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


@torch.no_grad()
def greedy(model, ids, stops):
    """Greedy continuation through the cache, without the end token."""
    device = model.device
    step = model(input_ids=torch.tensor([ids], device=device), use_cache=True)
    token, answer = step.logits[0, -1].argmax().item(), []
    while token not in stops and len(answer) < ANSWER_LIMIT:
        answer.append(token)
        fed = torch.tensor([[token]], device=device)
        step = model(input_ids=fed, past_key_values=step.past_key_values, use_cache=True)
        token = step.logits[0, -1].argmax().item()
    return answer


def expected_answer(message):
    """The text the model should write for an assistant message."""
    if not message.get("tool_calls"):
        return message["content"]
    function = message["tool_calls"][0]["function"]
    parameters = "".join(
        f"<parameter={name}>\n{value}\n</parameter>\n"
        for name, value in function["arguments"].items()
    )
    return f"<tool_call>\n<function={function['name']}>\n{parameters}</function>\n</tool_call>"


def first_exchange(messages):
    """Messages up to the first assistant answer (after a system message there is one more)."""
    return messages[:2] if messages[1]["role"] == "assistant" else messages[:3]


def chat_questions(seed):
    """Chats of the corpus cut to one exchange, endlessly: (family, messages, tools)."""
    rng = random.Random(seed)
    while True:
        sample = corpus.sample(rng)
        if "text" not in sample:
            yield sample["family"], first_exchange(sample["messages"]), sample["tools"]


def collect_answers(model, tokenizer, template_source, seed, count, may_think, log):
    """Greedy answers to `count` chats as rows of answers.jsonl, and {family: [right, asked]}.

    may_think(family) says whether a family is asked with thinking on where its sample has a
    reasoning; stories have no single right answer and always count as right.
    """
    template, stops = template_of(template_source), stop_ids(tokenizer)
    rows, accuracy = [], {}
    for family, messages, tools in chat_questions(seed):
        if len(rows) == count:
            break
        *prompt, target = messages
        thinking = may_think(family) and "reasoning_content" in target
        text = template.render(
            messages=prompt, tools=tools, add_generation_prompt=True, enable_thinking=thinking
        )
        ids = tokenizer.encode(text).ids
        answer = greedy(model, ids, stops)
        answer_text = tokenizer.decode(answer, skip_special_tokens=False)
        want = expected_answer(target)
        right = family == "story" or answer_text.split("</think>")[-1].strip() == want
        tally = accuracy.setdefault(family, [0, 0])
        tally[0] += right
        tally[1] += 1
        rows.append(
            {
                "family": family,
                "messages": prompt,
                "tools": tools,
                "enable_thinking": thinking,
                "prompt_ids": ids,
                "want": want,
                "greedy_ids": answer,
                "greedy_text": answer_text,
                "right": right,
            }
        )
    log("accuracy", {family: f"{right}/{asked}" for family, (right, asked) in accuracy.items()})
    return rows, accuracy


@torch.no_grad()
def golden_of_prompts(model, prompts, draft_logits=None):
    """Golden tensors of some prompts, prefixed p0., p1., ...

    draft_logits(ids, final) gives the MTP head's logits where the model has one.
    """
    golden = {}
    for number, prompt in enumerate(prompts):
        ids = torch.tensor([prompt], device=model.device)
        result = model(input_ids=ids, output_hidden_states=True, use_cache=False)
        tensors = {
            "ids": ids[0].int(),
            "logits": result.logits[0].float(),
            "hidden": torch.stack([h[0] for h in result.hidden_states]).float(),
        }
        if draft_logits:
            tensors["mtp_logits"] = draft_logits(ids, result.hidden_states[-1])[0].float()
        for name, tensor in tensors.items():
            golden[f"p{number}.{name}"] = tensor.contiguous().cpu()
    return golden


@torch.no_grad()
def measure_perplexity(model, tokenizer, texts, draft_logits=None):
    """Perplexity, and how often the MTP head predicts the trunk's next choice."""
    loss = predicted = agreed = drafted = 0
    for text in texts:
        ids = torch.tensor([tokenizer.encode(text).ids[:PERPLEXITY_LIMIT]], device=model.device)
        result = model(input_ids=ids, output_hidden_states=True, use_cache=False)
        log_probability = result.logits[0, :-1].log_softmax(-1)
        loss -= log_probability.gather(1, ids[0, 1:, None]).sum().item()
        predicted += ids.shape[1] - 1
        if draft_logits and ids.shape[1] > 3:
            drafts = draft_logits(ids, result.hidden_states[-1])[0].argmax(-1)
            agreed += (drafts[:-1] == result.logits[0, 1:-1].argmax(-1)).sum().item()
            drafted += len(drafts) - 1
    report = {
        "nll_per_token": loss / predicted,
        "perplexity": math.exp(loss / predicted),
        "tokens": predicted,
    }
    if drafted:
        report["mtp_agreement"] = agreed / drafted
    return report
