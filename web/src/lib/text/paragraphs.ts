/** Splits a description into paragraphs. Lines that were broken to fit a width are joined again. */

import { shown } from "./shown";

const KEPT = /^(\s{2,}|\s*[-*•>|#]|\s*\d+[.)]\s|\s*```)/; // lists, quotes, tables, headings, code

export function paragraphs(text: string): string[] {
  return shown(text)
    .split(/\n\s*\n/)
    .map((block) => {
      const lines = block.split("\n").filter((one) => one.trim() !== "");
      return lines.reduce(
        (before, now) => (KEPT.test(now) ? `${before}\n${now}` : `${before} ${now.trim()}`),
        lines.shift() ?? "",
      );
    })
    .filter((block) => block.trim() !== "");
}
