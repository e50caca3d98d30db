/**
 * Untrusted text, made safe to show.
 *
 * Svelte shows markup as text by itself. Invisible characters, and those that reverse the order of others, could make
 * a name look like another one: they are shown by their number. Joiners (U+200C, U+200D) stay inside emoji, and
 * between letters of scripts that use them.
 */

// Controls (except tab and line ends), soft hyphen, Arabic letter mark, zero width, bidi marks and isolates, fillers, tags.
const SIGNS =
  "\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\uffa0\\ufff0-\\ufffb\\u{e0000}-\\u{e0fff}";
const SCRIPTS = "Arab Syrc Mong Nkoo Mand Rohg Deva Beng Guru Gujr Orya Taml Telu Knda Mlym Sinh Khmr Mymr Tibt".split(
  " ",
);
const JOINED = `[${SCRIPTS.map((one) => `\\p{scx=${one}}`).join("")}]`;
const LETTER = "[\\p{L}\\p{M}]";
const EMOJI = "\\p{Extended_Pictographic}";
const IN_EMOJI = `(?<=${EMOJI}[\\ufe0f\\p{Emoji_Modifier}]?)\\u200d(?=${EMOJI})`;
const IN_WORD = `(?<=${JOINED})(?<=${LETTER})[\\u200c\\u200d](?=${JOINED})(?=${LETTER})`;

export const UNSEEN = new RegExp(`[${SIGNS}]|(?!${IN_EMOJI}|${IN_WORD})[\\u200c\\u200d]`, "gu");
/** The same, with all joiners. */
export const UNSEEN_OR_JOINER = new RegExp(`[${SIGNS}\\u200c\\u200d]`, "gu");

function marked(text: unknown, unseen: RegExp): string {
  return String(text ?? "").replace(unseen, (sign) => {
    const number = (sign.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
    return sign === "\r" ? "" : `⟨U+${number}⟩`;
  });
}

const inLine = (text: string): string => text.replace(/\s+/g, " ").trim();

export const shown = (text: unknown): string => marked(text, UNSEEN);

/** The same on one line, for rows and titles. */
export const line = (text: unknown): string => inLine(shown(text));

/** A name to approve, in one line, without joiners that could make it look like another name. */
export const exactName = (text: unknown): string => inLine(marked(text, UNSEEN_OR_JOINER));
