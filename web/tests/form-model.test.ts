import assert from "node:assert/strict";
import { test } from "vitest";

import {
  blank,
  branchOf,
  fits,
  initial,
  numberOf,
  same,
  shapeOf,
  takesNothing,
  takesText,
} from "../src/lib/form/model";

const kindOf = (schema: object, root: object = {}): string => {
  const { kind, isNullable } = shapeOf(schema, root);
  return isNullable ? `${kind}?` : kind;
};

for (const [schema, kind] of [
  [{ type: "string" }, "string"],
  [{ type: ["integer", "null"] }, "integer?"],
  [{ enum: ["a", "b"] }, "choice"],
  [{ const: 1 }, "choice"],
  [{ type: "array", items: { type: "string" } }, "array"],
  [{ type: "array" }, "json"],
  [{ type: "object" }, "json"],
  [{ type: "object", properties: { a: {} } }, "object"],
  [{ type: "object", additionalProperties: { type: "string" } }, "object"],
  [{ type: ["string", "number"] }, "union"],
  [{ anyOf: [{ type: "string" }, { type: "null" }] }, "string?"],
  [{ type: "object", patternProperties: { a: {} } }, "json"],
  [{}, "json"],
] as const) {
  test(`${JSON.stringify(schema)} is drawn as ${kind}`, () => assert.equal(kindOf(schema), kind));
}

test("a schema that contains itself ends", () => {
  const root = {
    $defs: { node: { type: "object", properties: { next: { $ref: "#/$defs/node" } }, required: ["next"] } },
    $ref: "#/$defs/node",
  };
  assert.equal(kindOf(root, root), "object");
  assert.ok(initial(root, root));
});

test("a form begins with defaults, constants and what is required", () => {
  const schema = {
    type: "object",
    required: ["kind", "at"],
    properties: {
      kind: { const: "x" },
      at: { type: "object", properties: { n: { default: 3 } }, required: ["n"] },
      later: { default: 1 },
    },
  };
  assert.deepEqual(initial(schema, schema), { kind: "x", at: { n: 3 } });
  assert.deepEqual(
    [blank({ type: "integer", minimum: 5 }, {}), blank({ enum: ["a"] }, {}), blank({ type: "array", items: {} }, {})],
    [5, "a", []],
  );
});

test("the branch of a value is the one whose constants it has", () => {
  const branches = ["cat", "dog"].map((kind) => ({
    type: "object",
    properties: { kind: { const: kind }, name: { type: "string" } },
    required: ["kind"],
  }));
  assert.deepEqual(
    [{ kind: "dog" }, { kind: "cat", name: "Tom" }, { kind: "cow" }].map((one) => branchOf(one, branches, {})),
    [1, 0, -1],
  );
});

test("a control shows only values of its kind", () => {
  const number = shapeOf({ type: "number" }, {});
  assert.deepEqual(
    [1, 2n, "1e", null, [1]].map((one) => fits(one, number, {})),
    [true, true, true, false, false],
  );
});

test("numbers keep every digit; other texts stay texts", () => {
  assert.deepEqual(["7", "+7", "12345678901234567890", " 1.5 ", ".5", "1e3", "1e999", "0x1", ""].map(numberOf), [
    7,
    7,
    12345678901234567890n,
    1.5,
    0.5,
    1000,
    "1e999",
    "0x1",
    "",
  ]);
});

test("values are compared by what they contain", () => {
  assert.ok(same({ a: [1, { b: null }] }, { a: [1, { b: null }] }));
  assert.ok(!same([], {}) && !same({ a: undefined as never }, { b: undefined as never }));
});

for (const [schema, isText] of [
  [{ description: "Any JSON value" }, true],
  [{ if: { type: "string" } }, true],
  [{ type: ["string", "array"], prefixItems: [] }, true],
  [{ type: "array" }, false],
  [{ type: "object" }, false],
  [{ enum: ["a", 1] }, false],
  [{ type: ["integer", "string"] }, false],
] as const) {
  test(`a field of JSON for ${JSON.stringify(schema)} ${isText ? "takes" : "doesn't take"} text`, () =>
    assert.equal(takesText(shapeOf(schema, {})), isText));
}

test("a tool without arguments needs no form", () => {
  assert.deepEqual(
    [{ type: "object", properties: {} }, { type: "object", minProperties: 1 }, { properties: { a: {} } }].map(
      takesNothing,
    ),
    [true, false, false],
  );
});
