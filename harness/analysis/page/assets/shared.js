"use strict";
// What all pages begin with. Everything that a model or a scenario wrote becomes text nodes, by these functions.

const PICTURES = { 0x7f: "\u2421" };
// Characters that are not seen, or that change how their neighbours are shown: shown by their number.
const UNSEEN = /\udb40[\udc00-\udfff]|[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

function seen(text) {
  return text.replace(UNSEEN, (character) => {
    const code = character.codePointAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return PICTURES[code] ?? `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
  });
}

// Where a long name may break: a zero-width space behind each joint.
function breakable(text) {
  return seen(text).replace(/[_:/]/g, "$&\u200b");
}

function element(tag, name, text) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
}

// The bytes of a data block: base64 of deflate.
async function inflated(id) {
  const text = atob(document.getElementById(id).textContent);
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
