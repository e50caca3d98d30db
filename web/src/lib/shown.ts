/**
 * Text of others, as it may be shown.
 *
 * Svelte shows markup as text by itself. What is left are characters that can't be seen, or that turn the order of
 * others around: a name could look like another. They are shown by their number.
 */

// Controls (but tab and line ends), soft hyphen, Arabic letter mark, zero width, bidi marks and isolates, fillers, tags.
export const UNSEEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;

export function shown(text: unknown): string {
  return String(text ?? "").replace(UNSEEN, (sign) => {
    const number = (sign.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
    return sign === "\r" ? "" : `⟨U+${number}⟩`;
  });
}

/** The same in one line, for rows and titles. */
export function line(text: unknown): string {
  return shown(text).replace(/\s+/g, " ").trim();
}
