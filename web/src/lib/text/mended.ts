/** The suggestions of `did you mean …?`, and replacing the wrong word. Pure functions. */

const QUESTION = /did you mean ([^?]{1,300})\?/i;

/** The names that a message suggests. */
export function suggested(message: string): string[] {
  return (
    QUESTION.exec(message)?.[1]
      ?.split(" or ")
      .map((one) => one.trim()) ?? []
  );
}

/** Replace the word that the message is about by `name`; null if the text doesn't contain that word. */
export function mended(text: string, message: string, name: string): string | null {
  const words = message.slice(0, message.search(QUESTION)).match(/[\p{L}\p{N}_$][\p{L}\p{N}_$.-]*/gu) ?? [];
  const found = words
    .map((word) => word.replace(/[.-]+$/, ""))
    .filter((word) => word !== name && placeOf(text, word) >= 0 && distance(word, name) <= Math.max(2, name.length / 2))
    .sort((a, b) => distance(a, name) - distance(b, name))[0];
  if (found === undefined) return null;
  const at = placeOf(text, found);
  return text.slice(0, at) + name + text.slice(at + found.length);
}

/** The position of a whole word. */
function placeOf(text: string, word: string): number {
  const isInside = (sign: string | undefined): boolean => sign !== undefined && /[\p{L}\p{N}_$]/u.test(sign);
  for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
    if (!isInside(text[at - 1]) && !isInside(text[at + word.length])) return at;
  }
  return -1;
}

/** The edit distance. */
function distance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (const [at, sign] of [...one].entries()) {
    const next = [at + 1];
    for (let to = 1; to <= other.length; to++)
      next.push(
        Math.min((row[to] ?? 0) + 1, (next[to - 1] ?? 0) + 1, (row[to - 1] ?? 0) + Number(sign !== other[to - 1])),
      );
    row = next;
  }
  return row[other.length] ?? 0;
}
