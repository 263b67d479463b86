/** The element of index.html with this id. */
export function byId(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`index.html has no #${id}`);
  return found;
}

/** A new element. Text goes in as text, never as markup. */
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** Control and direction characters as visible codes: what is approved is what is seen. */
export function reveal(text) {
  const hidden = /(?![\n\t])[\p{Cc}\p{Cf}]/gu;
  return text.replace(hidden, (character) => `\\u{${character.codePointAt(0).toString(16)}}`);
}
