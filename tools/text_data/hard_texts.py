"""Texts for training small tokenizers and for testing them: our own sentences in many scripts, the
demo models' corpus, and strings that are hard to split.

Everything is a pure function of the seed.
"""

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "demo_model"))
import corpus  # noqa: E402

SENTENCES = (
    "The engine reads only the experts that a token needs, and keeps the warm ones in memory.",
    "Don't stop: it's what they'd do, and we'll see if you've got what I'm after. THEY'RE LATE.",
    "Der Speicher ist kleiner als das Modell; trotzdem läuft es, weil Experten gestreamt werden.",
    "La mémoire est plus petite que le modèle, où l'élève a déjà été reçu à Noël.",
    "El niño preguntó: ¿cuántos expertos hay? ¡Sesenta y cuatro por capa!",
    "Память меньше модели, но она работает, потому что эксперты читаются с диска.",
    "Η μνήμη είναι μικρότερη από το μοντέλο, όμως τρέχει χάρη στους ειδικούς.",
    "内存比模型小，但是它可以运行，因为专家从磁盘读取。我们今天在学习中文。",
    "記憶はモデルより小さいですが、エキスパートをディスクから読むので動きます。カタカナもあります。",
    "메모리가 모델보다 작지만 전문가를 디스크에서 읽기 때문에 실행됩니다.",
    "الذاكرة أصغر من النموذج لكنه يعمل لأن الخبراء يُقرؤون من القرص ١٢٣٤.",
    "הזיכרון קטן מן המודל, ובכל זאת הוא רץ.",
    "स्मृति मॉडल से छोटी है, फिर भी वह चलता है क्योंकि विशेषज्ञ डिस्क से पढ़े जाते हैं १२३.",
    "หน่วยความจำเล็กกว่าโมเดล แต่ก็ทำงานได้",
    "Bộ nhớ nhỏ hơn mô hình nhưng nó vẫn chạy được.",
    "Bellek modelden küçük; İstanbul'da ılık bir gün, IŞIK ve ışık.",
    "for (int i = 0; i < n_tokens; ++i) { sum += weights[i] * x[i]; }  // 0x1F, 3.14e-10",
    "def load(path: str) -> dict:\n    with open(path) as file:\n        return json.load(file)\n",
    "SELECT name, COUNT(*) FROM experts WHERE layer >= 10 GROUP BY name;\r\n\r\n",
    '{"name": "search", "arguments": {"query": "caf\\u00e9", "limit": 10}}',
    "In 2026 it cost 1234567.89 dollars, 12,500 euros or 7 per cent of 10^9.",
    "https://example.org/a/b?c=d&e=%20f#part someone@example.org C:\\temp\\file.txt",
    "camelCaseWords, snake_case_words, SCREAMING_CASE and HTTPServerError2 in getURLs()",
    "👩‍👩‍👧‍👦 family, 🇩🇪 flag, 👍🏽 thumb, 😀😃😄 and ❤️ hearts",
    "∑ᵢ xᵢ² ≤ √(α·β) ⇒ f: ℝ→ℂ, ½ + ⅓ = ⅚, Ⅷ and ①②③",
    "\tindented\n\t\ttwice\n\n\n   three spaces   \n",
)

# Pieces that split rules treat differently: apostrophes, digits, marks, spaces, line ends, scripts.
PIECES = (
    *"aZéßſKİıЯяΩωñ中文のカ한글عह๛ก",
    *"0123456789٣७½Ⅷ²",
    *"'’`\"!?.,;:-_/\\|()[]{}<>@#$%^&*+=~",
    *" \t\n\r\u00a0\u2003\u3000\u180e\u200b\u200d\ufeff\u0085\u2028",
    *"\u0301\u0308\u093f\u0e33\ufe0f\u20e3",
    *"😀👍🏽🇩𝒳𠮷ﬁÅΩ각",
    *("'s", "'T", "'re", "'LL", "'ve", "'D", "’s", "don't", "I'm", "WE'RE", "O'Neil"),
    *("  ", "   ", "\n\n", "\r\n", " \n", "\n ", "\t\t", "...", "!!!", "--", "://", "/*", "*/"),
    *("the", " the", "The", " THE", "ing", " 12", "123", "1234", "12345678", " x", "HTTPServer"),
    *("e\u0301", "n\u0303", "a\u0308\u0323", "\u1112\u1161\u11ab", "\u0928\u093c"),
)


def training_lines(seed=0, count=1500):
    """Lines of the demo models' corpus, and the sentences often enough to earn merges."""
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        messages = corpus.sample(rng)
        lines.append("\n".join(_texts(messages)))
    return lines + list(SENTENCES) * 12


def _texts(value):
    """Every text inside a sample, whatever its form."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(one)


def hard_texts(special_tokens, seed=1, count=400):
    """`count` texts to encode; some hold special tokens, whole or cut."""
    rng = random.Random(seed)
    texts = ["", " ", "  ", "\n", "\r\n", "\t", "\u0301", "\ufeff", "a", "'", "'s", *SENTENCES]
    texts += [s.upper() for s in SENTENCES[:6]] + [" " + s for s in SENTENCES[6:12]]
    texts += ["x" * 50, " " * 33 + "x", "\n" * 9 + " ", "1" * 25, "é" * 20, "👍🏽" * 7, "ab " * 20]
    while len(texts) < count:
        pieces = [rng.choice(PIECES) for _ in range(rng.randint(2, 24))]
        kind = rng.random()
        if kind < 0.25:
            sentence = rng.choice(SENTENCES)
            start = rng.randrange(len(sentence))
            pieces.insert(rng.randrange(len(pieces)), sentence[start : start + rng.randint(3, 30)])
        elif kind < 0.5 and special_tokens:
            token = rng.choice(special_tokens)
            pieces.insert(rng.randrange(len(pieces)), token)
            pieces.append(token[: rng.randint(1, len(token))])
        texts.append("".join(pieces))
    return texts
