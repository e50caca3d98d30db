import assert from "node:assert/strict";
import { test } from "vitest";

import { stored } from "../src/lib/page/storage";

/** A store of the browser in which another program has kept this. */
function keeping(text: string): () => Storage {
  return () => ({ getItem: () => text }) as unknown as Storage;
}

const HOSTILE = [
  "{}",
  "[]",
  "5",
  "null",
  "true",
  "{",
  '""',
  '{"a": {"b": 1}}',
  "[[1]]",
  "[null]",
  '{"__proto__": {"hit": 1}}',
];

test("what another program has kept is of the kind that is wanted, or nothing", () => {
  for (const text of HOSTILE) {
    const place = keeping(text);
    assert.ok(["string", "object"].includes(typeof stored<string | null>("x", null, place)), text);
    assert.ok(stored<string | null>("x", null, place) === null || typeof stored("x", "", place) === "string", text);
    assert.equal(typeof stored("x", "otherwise", place), "string", text);
    assert.equal(typeof stored("x", false, place), "boolean", text);
    const list = stored<string[]>("x", ["a"], place);
    assert.ok(Array.isArray(list) && list.every((one) => typeof one === "string"), text);
    const map = stored<Record<string, string>>("x", { a: "b" }, place);
    assert.ok(map !== null && !Array.isArray(map), text);
    assert.ok(
      Object.values(map).every((one) => typeof one === "string"),
      text,
    );
  }
});

test("what the page has kept itself comes back", () => {
  assert.deepEqual(stored<string[]>("x", [], keeping('["a"]')), ["a"]);
  assert.deepEqual(stored("x", { provider: "", model: "" }, keeping('{"provider": "p", "model": "m"}')), {
    provider: "p",
    model: "m",
  });
  assert.equal(stored<string | null>("x", null, keeping('"text"')), "text");
  assert.equal(stored("x", false, keeping("true")), true);
  assert.equal(
    stored("x", "a", () => {
      throw new Error("closed");
    }),
    "a",
  );
});
