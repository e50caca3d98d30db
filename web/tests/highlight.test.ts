import assert from "node:assert/strict";
import { test } from "vitest";

import { JSON_TEXT, PYTHON } from "../src/lib/editor/highlight";

const KINDS = ["comment", "string", "number", "keyword", "name"];

/** The coloured tokens of a text, as `kind:text`. */
function tokens(pattern: RegExp, text: string): string[] {
  const kind = (groups: (string | undefined)[]): string | undefined =>
    KINDS[groups.findIndex((one, at) => at > 0 && one !== undefined) - 1];
  return [...text.matchAll(pattern)].filter((one) => kind(one)).map((one) => `${kind(one)}:${one[0]}`);
}

for (const [text, found] of [
  ['{"a": "b", "c" : [1, true]}', ['name:"a"', 'string:"b"', 'name:"c"', "number:1", "number:true"]],
  [String.raw`{"a\"b": "c\": d"}`, [String.raw`name:"a\"b"`, String.raw`string:"c\": d"`]],
  ['["open\n"a": 1', ['string:"open', 'name:"a"', "number:1"]],
] as const) {
  test(`names and texts of ${JSON.stringify(text)} have different colours`, () =>
    assert.deepEqual(tokens(JSON_TEXT, text), found));
}

for (const [text, found] of [
  ["for x in f(1):  # all", ["keyword:for", "keyword:in", "name:f", "number:1", "comment:# all"]],
  ["format = informal", []],
  ['a = """x\n# "y" \n"""', ['string:"""x\n# "y" \n"""']],
  ["s = rb'\\'' + None", ["string:rb'\\''", "number:None"]],
  ["'open\nif 0x1F: pass", ["string:'open", "keyword:if", "number:0x1F", "keyword:pass"]],
  ["größe(1_000.5e3)", ["name:größe", "number:1_000.5e3"]],
] as const) {
  test(`Python ${JSON.stringify(text)} has its colours`, () => assert.deepEqual(tokens(PYTHON, text), found));
}
