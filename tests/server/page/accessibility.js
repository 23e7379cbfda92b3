// Runs in the page and returns a list of what is wrong for somebody who uses a keyboard, a screen reader or
// tired eyes: names of controls, headings, landmarks, ids, contrast. Empty: nothing was found.
const problems = [];
const isShown = (element) => element.checkVisibility({opacityProperty: true, visibilityProperty: true}) && element.getClientRects().length > 0;
const describe = (element) => {
  const name = element.className?.baseVal ?? element.className;
  return `<${element.localName}${element.id ? ` id=${element.id}` : ''}${name ? ` class="${name}"` : ''}>${(element.textContent ?? '').trim().slice(0, 40)}`;
};

// Where a dialog is open, the rest of the page is out of reach.
const dialog = document.querySelector('dialog[open]');
const root = dialog ?? document.body;
const all = [...root.querySelectorAll('*')].filter((element) => isShown(element) && !element.closest('[inert]'));

// Names.
const nameOf = (element) => {
  const labelled = (element.getAttribute('aria-labelledby') ?? '').split(/\s+/).map((id) => document.getElementById(id)?.textContent ?? '').join(' ').trim();
  return labelled || element.getAttribute('aria-label') || [...(element.labels ?? [])].map((label) => label.textContent).join(' ').trim() || element.textContent.trim() || element.getAttribute('title');
};
for (const element of all) {
  if (element.matches('button, a[href], input, select, textarea, summary, dialog, [role=img], [role=menu], [role=menuitem], [tabindex="0"]') && !nameOf(element))
    problems.push(`has no name: ${describe(element)}`);
  if (element.localName === 'img' && !element.hasAttribute('alt')) problems.push(`has no alternative text: ${describe(element)}`);
  if (element.matches('[aria-hidden=true]') && element.querySelector('button, a[href], input, select, textarea')) problems.push(`is hidden from readers and has controls: ${describe(element)}`);
  for (const attribute of ['aria-controls', 'aria-labelledby', 'aria-describedby']) {
    for (const id of (element.getAttribute(attribute) ?? '').split(/\s+/).filter(Boolean))
      if (!document.getElementById(id)) problems.push(`${attribute} names ${id}, which is not there: ${describe(element)}`);
  }
  if (Number(element.getAttribute('tabindex') ?? 0) > 0) problems.push(`changes the order of focus: ${describe(element)}`);
}

// Ids, landmarks, headings.
const ids = [...document.querySelectorAll('[id]')].map((element) => element.id);
for (const id of new Set(ids)) if (ids.filter((each) => each === id).length > 1) problems.push(`id ${id} is there more than once`);
if (!document.documentElement.lang) problems.push('the page has no language');
if (!document.title) problems.push('the page has no title');
if (!dialog) {
  const main = document.querySelectorAll('main');
  if (main.length !== 1) problems.push(`there are ${main.length} main landmarks`);
  const headings = all.filter((element) => /^h[1-6]$/.test(element.localName) && !element.closest('nav, aside')).map((element) => Number(element.localName[1]));
  if (isShown(main[0]) && headings.filter((level) => level === 1).length !== 1) problems.push(`there are ${headings.filter((level) => level === 1).length} headings of the first level`);
  headings.forEach((level, i) => {
    if (i > 0 && level > headings[i - 1] + 1 && !all.find((element) => element.localName === `h${level}`).closest('.prose')) problems.push(`a heading of level ${level} follows one of level ${headings[i - 1]}`);
  });
}

// Contrast, as WCAG 2 counts it: 4.5, or 3 for large letters.
const context = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const rgba = (colour) => {
  context.clearRect(0, 0, 1, 1);
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
};
const over = ([r, g, b, a], [r2, g2, b2]) => [r * a + r2 * (1 - a), g * a + g2 * (1 - a), b * a + b2 * (1 - a), 1];
const groundOf = (element) => {
  const layers = [];
  for (let at = element; at; at = at.parentElement) {
    const colour = rgba(getComputedStyle(at).backgroundColor);
    layers.push(colour);
    if (colour[3] === 1) break;
  }
  return layers.reverse().reduce((ground, layer) => over(layer, ground), [255, 255, 255, 1]);
};
const luminance = (colour) => colour.slice(0, 3).map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
for (const element of all) {
  const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const field = element.matches('input:not([type=range], [type=checkbox], [type=radio]), textarea') && (element.value || element.placeholder);
  if (!(own || field) || element.closest('button:disabled, :disabled, .visually-hidden, [aria-hidden=true]') || element.getAnimations().length > 0) continue;
  const style = getComputedStyle(element, field && !element.value ? '::placeholder' : null);
  const ground = groundOf(element), ink = over(rgba(style.color), ground);
  const [light, dark] = [luminance(ink), luminance(ground)].sort((a, b) => b - a);
  const ratio = (light + 0.05) / (dark + 0.05), size = parseFloat(style.fontSize);
  const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
  if (ratio < needed - 0.005) problems.push(`contrast ${ratio.toFixed(2)} is less than ${needed}: ${describe(element)}`);
}

// Nothing is wider than the window.
if (document.documentElement.scrollWidth > innerWidth) problems.push(`the page is ${document.documentElement.scrollWidth} wide in a window of ${innerWidth}`);
return problems;
