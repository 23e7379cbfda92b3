// What the commands of TeX stand for.

const words = (text) => Object.fromEntries(text.trim().split(/\s+/).map((pair) => pair.split(':')));

// Letters and other things that stand for themselves: <mi>.
export const IDENTIFIERS = words(`
alpha:α beta:β gamma:γ delta:δ epsilon:ϵ varepsilon:ε zeta:ζ eta:η theta:θ vartheta:ϑ iota:ι kappa:κ lambda:λ mu:μ nu:ν xi:ξ
omicron:ο pi:π varpi:ϖ rho:ρ varrho:ϱ sigma:σ varsigma:ς tau:τ upsilon:υ phi:ϕ varphi:φ chi:χ psi:ψ omega:ω Gamma:Γ Delta:Δ
Theta:Θ Lambda:Λ Xi:Ξ Pi:Π Sigma:Σ Upsilon:Υ Phi:Φ Psi:Ψ Omega:Ω infty:∞ partial:∂ nabla:∇ hbar:ℏ ell:ℓ Re:ℜ Im:ℑ aleph:ℵ
emptyset:∅ varnothing:∅ imath:ı jmath:ȷ wp:℘ top:⊤ bot:⊥ angle:∠ degree:° dots:… ldots:… cdots:⋯ vdots:⋮ ddots:⋱ dotsc:… dotsb:⋯
checkmark:✓ blacksquare:■ square:□ Box:□ triangle:△ prime:′ clubsuit:♣ diamondsuit:♢ heartsuit:♡ spadesuit:♠ AA:Å pounds:£`);

// Operators and relations: <mo>.
export const OPERATORS = words(`
pm:± mp:∓ times:× div:÷ cdot:⋅ ast:∗ star:⋆ circ:∘ bullet:∙ oplus:⊕ ominus:⊖ otimes:⊗ oslash:⊘ odot:⊙ cup:∪ cap:∩ sqcup:⊔ sqcap:⊓
vee:∨ wedge:∧ lor:∨ land:∧ lnot:¬ neg:¬ setminus:∖ backslash:\\ dagger:† ddagger:‡ amalg:⨿ le:≤ leq:≤ ge:≥ geq:≥ leqslant:⩽
geqslant:⩾ ll:≪ gg:≫ ne:≠ neq:≠ equiv:≡ approx:≈ sim:∼ simeq:≃ cong:≅ propto:∝ prec:≺ succ:≻ preceq:⪯ succeq:⪰ subset:⊂ supset:⊃
subseteq:⊆ supseteq:⊇ subsetneq:⊊ nsubseteq:⊈ in:∈ ni:∋ notin:∉ mid:∣ nmid:∤ parallel:∥ perp:⊥ vdash:⊢ dashv:⊣ models:⊨ forall:∀
exists:∃ nexists:∄ to:→ rightarrow:→ leftarrow:← gets:← leftrightarrow:↔ Rightarrow:⇒ Leftarrow:⇐ Leftrightarrow:⇔ implies:⟹
impliedby:⟸ iff:⟺ mapsto:↦ longmapsto:⟼ longrightarrow:⟶ longleftarrow:⟵ Longrightarrow:⟹ Longleftarrow:⟸ uparrow:↑ downarrow:↓
updownarrow:↕ Uparrow:⇑ Downarrow:⇓ hookrightarrow:↪ hookleftarrow:↩ rightharpoonup:⇀ leftharpoonup:↼ rightleftharpoons:⇌ nearrow:↗
searrow:↘ swarrow:↙ nwarrow:↖ therefore:∴ because:∵ asymp:≍ doteq:≐ triangleq:≜ coloneqq:≔ colon:: lt:< gt:> lvert:| rvert:| vert:|
Vert:‖ lVert:‖ rVert:‖ langle:⟨ rangle:⟩ lfloor:⌊ rfloor:⌋ lceil:⌈ rceil:⌉ lbrace:{ rbrace:} lbrack:[ rbrack:] surd:√ ltimes:⋉ rtimes:⋊
lesssim:≲ gtrsim:≳ vDash:⊨ Vdash:⊩ trianglelefteq:⊴ bowtie:⋈ upharpoonright:↾ restriction:↾`);

// Large ones; the second kind has its limits above and below in a display.
export const INTEGRALS = words('int:∫ iint:∬ iiint:∭ oint:∮');
export const SUMS = words(`sum:∑ prod:∏ coprod:∐ bigcup:⋃ bigcap:⋂ bigvee:⋁ bigwedge:⋀ bigoplus:⨁ bigotimes:⨂ bigodot:⨀ biguplus:⨄ bigsqcup:⨆`);

export const FUNCTIONS = new Set(`sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth log ln lg exp deg dim hom ker arg
Pr det gcd`.split(/\s+/));
export const LIMIT_FUNCTIONS = new Set('lim max min sup inf limsup liminf argmax argmin'.split(' '));

export const ACCENTS = words('hat:^ widehat:^ bar:¯ overline:¯ vec:→ overrightarrow:→ dot:˙ ddot:¨ tilde:~ widetilde:~ check:ˇ breve:˘ acute:´ grave:` overbrace:⏞');
export const UNDERS = words('underline:_ underbrace:⏟');

export const SPACES = {',': 0.167, ':': 0.222, '>': 0.222, ';': 0.278, '!': -0.167, ' ': 0.25, quad: 1, qquad: 2, enspace: 0.5, thinspace: 0.167};

// Alphabets of Unicode: where A, a and 0 are, and what is elsewhere.
const ALPHABETS = {
  mathbb: [0x1D538, 0x1D552, 0x1D7D8, {C: 'ℂ', H: 'ℍ', N: 'ℕ', P: 'ℙ', Q: 'ℚ', R: 'ℝ', Z: 'ℤ'}],
  mathcal: [0x1D49C, 0x1D4B6, 0, {B: 'ℬ', E: 'ℰ', F: 'ℱ', H: 'ℋ', I: 'ℐ', L: 'ℒ', M: 'ℳ', R: 'ℛ', e: 'ℯ', g: 'ℊ', o: 'ℴ'}],
  mathfrak: [0x1D504, 0x1D51E, 0, {C: 'ℭ', H: 'ℌ', I: 'ℑ', R: 'ℜ', Z: 'ℨ'}],
  mathbf: [0x1D400, 0x1D41A, 0x1D7CE, {}],
  boldsymbol: [0x1D468, 0x1D482, 0x1D7CE, {}],
  mathsf: [0x1D5A0, 0x1D5BA, 0x1D7E2, {}],
  mathtt: [0x1D670, 0x1D68A, 0x1D7F6, {}],
};
ALPHABETS.mathscr = ALPHABETS.mathcal;
ALPHABETS.bm = ALPHABETS.boldsymbol;

export const isAlphabet = (name) => name in ALPHABETS;

const BOLD_GREEK = 0x1D6C2;  // α; they follow each other as in Unicode's Greek

export function inAlphabet(name, text) {
  const [upper, lower, digit, special] = ALPHABETS[name];
  return Array.from(text, (c) => {
    if (special[c]) return special[c];
    if (c >= 'A' && c <= 'Z') return String.fromCodePoint(upper + c.charCodeAt(0) - 65);
    if (c >= 'a' && c <= 'z') return String.fromCodePoint(lower + c.charCodeAt(0) - 97);
    if (digit && c >= '0' && c <= '9') return String.fromCodePoint(digit + c.charCodeAt(0) - 48);
    if (upper === ALPHABETS.mathbf[0] && c >= 'α' && c <= 'ω') return String.fromCodePoint(BOLD_GREEK + c.charCodeAt(0) - 0x3B1);
    return c;
  }).join('');
}
