import assert from "node:assert/strict";
import { test } from "vitest";

import {
  JsonTextError,
  jsonOrText,
  objectIn,
  parseJson,
  writeJson,
  writeJsonOrText,
  type Json,
} from "../src/lib/text/json-text";

test("integers keep every digit", () => {
  const text = '{"id":90071992547409931,"n":[1,-12345678901234567890,0.5]}';
  const value = parseJson(text) as { id: Json };
  assert.equal(value.id, 90071992547409931n);
  assert.equal(writeJson(value), text);
});

test("an indented text reads as the same value", () => {
  const value = { a: [1, { b: 12345678901234567890n }], c: {}, d: [] };
  assert.deepEqual(parseJson(writeJson(value, 2)), value);
  assert.equal(writeJson({ a: [1n] }, 2), '{\n  "a": [\n    1\n  ]\n}');
});

for (const [text, line, column, sign] of [
  ["", 1, 1, ""],
  ['{"a": 1,}', 1, 9, "}"],
  ['{\n  "a": tru\n}', 2, 8, "t"],
  ["[1 2]", 1, 4, "2"],
  ['"a\nb"', 1, 3, "\n"],
  ["[1] x", 1, 5, "x"],
  ["01", 1, 2, "1"],
  ["😀", 1, 1, "😀"],
] as const) {
  test(`${JSON.stringify(text)} is refused with its place`, () => {
    assert.throws(
      () => parseJson(text),
      (error) =>
        error instanceof JsonTextError && error.line === line && error.column === column && error.sign === sign,
    );
  });
}

test("a text that is too deep is refused", () => {
  assert.throws(() => parseJson(`${"[".repeat(600)}1234567890123456${"]".repeat(600)}`), JsonTextError);
});

for (const [text, value, written] of [
  ["hello plus", "hello plus", "hello plus"],
  ["", "", ""],
  ['{"a": 1', '{"a": 1', '{"a": 1'],
  ['"3"', "3", '"3"'],
  ['{"a": 1}', { a: 1 }, '{"a":1}'],
] as const) {
  test(`${JSON.stringify(text)} is read as ${JSON.stringify(value)} where text and JSON count`, () => {
    assert.deepEqual(jsonOrText(text), value);
    assert.equal(writeJsonOrText(value), written);
    assert.deepEqual(jsonOrText(written), value);
  });
}

test("__proto__ is a key like others", () => {
  const found = parseJson('{"__proto__": {"a": 1}, "n": 12345678901234567}') as object;
  assert.deepEqual(Object.keys(found), ["__proto__", "n"]);
  assert.equal((found as { a?: number }).a, undefined);
});

test("what is not an object counts as an empty one", () => {
  assert.deepEqual([objectIn("[1]"), objectIn("{"), objectIn('{"a": 1}')], [{}, {}, { a: 1 }]);
});
