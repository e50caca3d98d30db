/**
 * Values of earlier steps in the text of a recipe: `${step1.daily[0].temp}`, or `${table(step1, "city", "celsius")}`.
 *
 * A text that is nothing but one of these is that value itself. Before `{`, every two dollars are one, so `$${step1}`
 * stands for the characters `${step1}`. What is not the name of a step or an argument is text like any other.
 */

import { isObject, type Json } from "../text/json-text";
import { below } from "../text/pointer";
import { pathOf } from "../text/result-views";

export type Path = readonly (string | number)[]; // the first is a name
export type Piece = string | { path: Path; columns?: readonly string[] };
export type Names = ReadonlySet<string>;

const STRING = '"(?:[^"\\\\\\x00-\\x1f]|\\\\(?:["\\\\/bfnrt]|u[\\da-fA-F]{4}))*"'; // of JSON
const PATH = `[A-Za-z_]\\w*(?:\\.[A-Za-z_]\\w*|\\[\\d+\\]|\\[${STRING}\\])*`;
const PLACE = new RegExp(`(?<!\\$)(\\$+)\\{(?:(${PATH})|table\\((${PATH})((?:, ?${STRING})+)\\))\\}`, "g");
const STEP = new RegExp(`\\.([A-Za-z_]\\w*)|\\[(\\d+)\\]|\\[(${STRING})\\]`, "g");

export function piecesOf(text: string, names: Names): Piece[] {
  const pieces: Piece[] = [];
  const add = (more: string): void => {
    if (typeof pieces.at(-1) === "string") pieces.push(`${String(pieces.pop())}${more}`);
    else if (more !== "") pieces.push(more);
  };
  let end = 0;
  for (const found of text.matchAll(PLACE)) {
    const [whole, dollars = "", path, rows, columns] = found;
    const place = pathIn(path ?? rows ?? "");
    add(text.slice(end, found.index));
    end = found.index + whole.length;
    if (!names.has(String(place[0]))) add(whole);
    else {
      add("$".repeat(dollars.length >> 1));
      if (dollars.length % 2 === 0) add(whole.slice(dollars.length));
      else
        pieces.push(
          columns === undefined
            ? { path: place }
            : {
                path: place,
                columns: (columns.match(new RegExp(STRING, "g")) ?? []).map((one) => JSON.parse(one) as string),
              },
        );
    }
  }
  add(text.slice(end));
  return pieces;
}

/** Join the pieces into a text. */
export function templateOf(pieces: readonly Piece[], names: Names): string {
  return pieces
    .map((piece, index) => {
      if (typeof piece !== "string") return referenceOf(piece.path, piece.columns);
      const safe = piece.replace(PLACE, (whole: string, dollars: string, path?: string, rows?: string) =>
        names.has(String(pathIn(path ?? rows ?? "")[0])) ? dollars + whole : whole,
      );
      return typeof pieces[index + 1] === "object" ? safe.replace(/(?<!\$)\$+$/, "$&$&") : safe;
    })
    .join("");
}

/** The placeholder of a path. */
export function referenceOf(path: Path, columns?: readonly string[]): string {
  const written = String(path[0]) + pathOf(path.slice(1));
  return columns
    ? `\${table(${[written, ...columns.map((one) => JSON.stringify(one))].join(", ")})}`
    : `\${${written}}`;
}

function pathIn(text: string): Path {
  const steps = [...text.matchAll(STEP)].map(
    ([, name, index, key]) => name ?? (index === undefined ? (JSON.parse(key ?? '""') as string) : Number(index)),
  );
  return [/^\w*/.exec(text)?.[0] ?? "", ...steps];
}

/** Pointers to unknown steps or arguments in a value, with their names. */
export function unknownNames(value: Json, names: Names, pointer = ""): { pointer: string; name: string }[] {
  if (typeof value === "string") {
    const found = [...value.matchAll(PLACE)]
      .filter(([, dollars = ""]) => dollars.length % 2 === 1)
      .map(([, , path, rows]) => String(pathIn(path ?? rows ?? "")[0]));
    return [...new Set(found)].filter((one) => !names.has(one)).map((name) => ({ pointer, name }));
  }
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, one]) => unknownNames(one, names, below(pointer, key)));
}

/** The names that a value refers to. */
export function usedNames(value: Json, names: Names): string[] {
  if (typeof value === "string")
    return piecesOf(value, names).flatMap((piece) => (typeof piece === "string" ? [] : [String(piece.path[0])]));
  if (typeof value !== "object" || value === null) return [];
  return Object.values(value).flatMap((one) => usedNames(one, names));
}

/** Rename a name in a value. */
export function withName<T extends Json>(value: T, from: string, to: string, names: Names): T;
export function withName(value: Json, from: string, to: string, names: Names): Json {
  if (Array.isArray(value)) return value.map((one) => withName(one, from, to, names));
  if (isObject(value))
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, withName(one, from, to, names)]));
  if (typeof value !== "string") return value;
  const pieces = piecesOf(value, names).map((piece) =>
    typeof piece !== "string" && piece.path[0] === from ? { ...piece, path: [to, ...piece.path.slice(1)] } : piece,
  );
  return templateOf(pieces, new Set([...names].filter((one) => one !== from)));
}

/** The path of a text that is a single placeholder; null for other values. */
export function wholePlace(value: Json | undefined): string | null {
  if (typeof value !== "string" || !value.startsWith("${")) return null;
  const [found] = value.matchAll(PLACE);
  return found?.[0] === value ? value.slice(2, -1) : null;
}
