"""The corpus is part of the bundled models: python3 -m unittest test_corpus."""

import hashlib
import json
import random
import unittest

import corpus

# Of the first 5000 samples of seed 0, as the bundled models learned them.
DIGEST = "e135275c8ed38d19b435b0325cc6c80d5d3abdad4d05dea384a689e246249785"


class Corpus(unittest.TestCase):
    def test_samples_are_unchanged(self):
        rng = random.Random(0)
        lines = "\n".join(json.dumps(corpus.sample(rng)) for _ in range(5000))
        self.assertEqual(hashlib.sha256(lines.encode()).hexdigest(), DIGEST)

    def test_every_family_occurs(self):
        rng = random.Random(1)
        seen = {corpus.sample(rng)["family"] for _ in range(2000)}
        self.assertEqual(seen, {family.__name__ for family in corpus.FAMILIES})

    def test_column_addition(self):
        self.assertEqual(corpus.addition_steps(58, 7), "8 + 7 = 15, 5 + 0 + 1 = 6, so 65.")


if __name__ == "__main__":
    unittest.main()
