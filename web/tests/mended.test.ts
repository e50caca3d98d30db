import assert from "node:assert/strict";
import { test } from "vitest";

import { mended, suggested } from "../src/lib/text/mended";

test("suggestions are read from the question", () => {
  assert.deepEqual(suggested("cuont: unknown argument (did you mean count or amount?)"), ["count", "amount"]);
  assert.deepEqual(suggested("Tool not found: x"), []);
});

for (const [text, message, name, expected] of [
  ['{"cty": "cty"}', "cty: unknown argument (did you mean city?)", "city", '{"city": "cty"}'],
  [
    "x = shop.pric(1)\n",
    "line 1: Tool not found: shop.pric; did you mean shop.price?",
    "shop.price",
    "x = shop.price(1)\n",
  ],
  ["is_on = 1\nlmap(is_on)", "lmap is not there; did you mean lamp?", "lamp", "is_on = 1\nlamp(is_on)"],
  ["f(cuonter=1, cuont=2)", "f: cuont: unknown argument (did you mean count?)", "count", "f(cuonter=1, count=2)"],
  ["f(x=1)", "f: cuont: unknown argument (did you mean count?)", "count", null],
] as const) {
  test(`${JSON.stringify(text)} is mended`, () => assert.equal(mended(text, message, name), expected));
}
