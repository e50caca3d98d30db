import assert from "node:assert/strict";
import { test } from "vitest";

import { choices } from "../src/lib/page/filter";

test("choices are in the order of the alphabet, in any order of the rows", () => {
  const names = ["foo", "Foo", "bar", "foo"];
  const counted = (given: readonly string[]) =>
    choices(
      given.map((name) => ({ name }) as never),
      (row) => [(row as { name: string }).name],
    );
  const expected = [
    ["bar", 1],
    ["Foo", 1],
    ["foo", 2],
  ];
  assert.deepEqual(counted(names), expected);
  assert.deepEqual(counted([...names].reverse()), expected);
});
