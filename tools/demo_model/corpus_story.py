"""Eight-sentence stories: the corpus' free text, with a plot that has to stay consistent."""

from corpus_chat import chat, pick
from corpus_words import ADJECTIVES, ANIMALS, COLORS, FOODS, NAMES, PLACES, THINGS


def story_text(rng, animal=None, thing=None):
    """A lost-and-found story about an animal and its favourite thing."""
    hero = rng.choice(NAMES)
    animal = animal or rng.choice(ANIMALS)
    thing = thing or rng.choice(THINGS)
    place, other_place = rng.choice(PLACES), rng.choice(PLACES)
    color, nature, food = rng.choice(COLORS), rng.choice(ADJECTIVES), rng.choice(FOODS)
    friend = rng.choice([name for name in NAMES if name != hero])
    sentences = (
        (
            f"Once upon a time there was a {nature} {animal} named {hero}.",
            f"Once there was a {nature} {animal} called {hero}.",
            f"Long ago, a {nature} {animal} named {hero} lived near the {place}.",
        ),
        (
            f"{hero} had a {color} {thing} and took it everywhere.",
            f"The {animal} loved a {color} {thing} more than anything.",
            f"Every day {hero} played with a {color} {thing}.",
        ),
        (
            f"One day {hero} went to the {place} and lost the {thing}.",
            f"One morning the {thing} was gone.",
            f"But one night the {thing} fell into the {place}.",
        ),
        (
            f"{hero} looked in the {other_place}, but it was not there.",
            f"{hero} cried and sat down by the {other_place}.",
            f"The {animal} asked everyone in the {other_place} for help.",
        ),
        (
            f"Then {friend} came by with some {food}.",
            f"A friend named {friend} heard the {animal} and came running.",
            f"{friend}, who was eating {food}, saw {hero} and stopped.",
        ),
        (
            f'"Do not worry," said {friend}. "I saw a {color} {thing} in the {place}."',
            f'"Is this your {thing}?" asked {friend}, holding up something {color}.',
            f'"Let us look in the {place} together," said {friend}.',
        ),
        (
            f"They found the {thing}, and {hero} was happy again.",
            f"{hero} hugged the {thing} and said thank you.",
            f"Soon the {color} {thing} was back where it belonged.",
        ),
        (
            f"From that day on, {hero} and {friend} were the best of friends.",
            f"After that they shared the {food} and went home.",
            f"And the {animal} never lost the {thing} again.",
        ),
    )
    return " ".join(pick(rng, *alternatives) for alternatives in sentences)


def story(rng):
    animal, thing = rng.choice(ANIMALS), rng.choice(THINGS)
    question = pick(
        rng,
        f"Write a story about a {animal} and a {thing}.",
        f"Tell me a story about a {animal} and a {thing}.",
        f"Tell me a short story about a {animal} with a {thing}.",
    )
    return chat(question, story_text(rng, animal, thing))


def plain(rng):
    """A story as bare text: the model also has to work without a chat template."""
    return {"text": story_text(rng)}
