"""The words the procedural corpus is made of.

The order of every list is part of the corpus: samples are drawn by index, so reordering or adding
a word changes all of them.
"""

NAMES = (
    "Anna Ben Clara David Emma Felix Grace Henry Iris Jack Kate Leo Mia Noah Olga Paul Rosa Sam "
    "Tara Victor Wendy Yusuf Zoe Lily Tom Max Nina Omar Ruth Hugo"
).split()
ANIMALS = (
    "fox cat dog owl bear rabbit mouse frog duck horse wolf hen goat lion snail turtle bee whale"
).split()
THINGS = (
    "lamp key book map coin cup ball hat kite drum bell rope stone box shoe flute clock letter "
    "ring basket"
).split()
PLACES = (
    "kitchen garden attic forest cave barn library harbor market tower meadow cellar school mill "
    "bridge"
).split()
ADJECTIVES = "small brave old quiet clever happy tired curious kind lazy proud shy".split()
COLORS = "red blue green yellow white black brown purple silver golden".split()
FOODS = "bread soup cake apple pear honey cheese pie rice corn".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December"
).split()


def _pairs(text):
    """'a/b c/d' -> {a: b, c: d}; an underscore stands for a space inside a word."""
    return dict(pair.replace("_", " ").split("/") for pair in text.split())


CAPITALS = _pairs(
    "France/Paris Spain/Madrid Italy/Rome Germany/Berlin Portugal/Lisbon Austria/Vienna "
    "Greece/Athens Poland/Warsaw Norway/Oslo Sweden/Stockholm Finland/Helsinki "
    "Denmark/Copenhagen Ireland/Dublin Hungary/Budapest Romania/Bucharest Bulgaria/Sofia "
    "Croatia/Zagreb Serbia/Belgrade Ukraine/Kyiv Turkey/Ankara Egypt/Cairo Morocco/Rabat "
    "Kenya/Nairobi Ghana/Accra Senegal/Dakar Ethiopia/Addis_Ababa Japan/Tokyo China/Beijing "
    "India/Delhi Thailand/Bangkok Vietnam/Hanoi Indonesia/Jakarta Malaysia/Kuala_Lumpur "
    "Nepal/Kathmandu Iran/Tehran Iraq/Baghdad Israel/Jerusalem Jordan/Amman Canada/Ottawa "
    "Mexico/Mexico_City Cuba/Havana Peru/Lima Chile/Santiago Brazil/Brasilia "
    "Argentina/Buenos_Aires Colombia/Bogota Uruguay/Montevideo Ecuador/Quito "
    "Australia/Canberra Iceland/Reykjavik"
)
CITIES = list(CAPITALS.values())
OPPOSITES = _pairs(
    "hot/cold big/small day/night up/down fast/slow happy/sad open/closed full/empty wet/dry "
    "light/dark old/young early/late rich/poor strong/weak hard/soft clean/dirty left/right "
    "high/low first/last true/false loud/quiet near/far thick/thin sweet/sour sharp/blunt"
)
SOUNDS = _pairs(
    "cat/meow dog/woof cow/moo duck/quack sheep/baa horse/neigh owl/hoot frog/ribbit lion/roar "
    "bee/buzz pig/oink hen/cluck mouse/squeak wolf/howl"
)
FRENCH = _pairs(
    "cat/chat dog/chien house/maison bread/pain water/eau book/livre tree/arbre sun/soleil "
    "moon/lune milk/lait door/porte king/roi queen/reine red/rouge blue/bleu green/vert "
    "white/blanc black/noir one/un two/deux three/trois day/jour night/nuit fish/poisson "
    "horse/cheval apple/pomme table/table school/\u00e9cole friend/ami city/ville"
)
SPANISH = _pairs(
    "cat/gato dog/perro house/casa bread/pan water/agua book/libro tree/\u00e1rbol sun/sol "
    "moon/luna milk/leche door/puerta king/rey queen/reina red/rojo blue/azul green/verde "
    "white/blanco black/negro one/uno two/dos three/tres day/d\u00eda night/noche fish/pez "
    "horse/caballo apple/manzana table/mesa school/escuela friend/amigo city/ciudad"
)

_SMALL_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
).split()
_TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()


def spell_number(n):
    """0..999 in English words."""
    if n < 20:
        return _SMALL_NUMBERS[n]
    if n < 100:
        return _TENS[n // 10] + ("-" + _SMALL_NUMBERS[n % 10] if n % 10 else "")
    rest = " and " + spell_number(n % 100) if n % 100 else ""
    return _SMALL_NUMBERS[n // 100] + " hundred" + rest
