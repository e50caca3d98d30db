import assert from "node:assert/strict";
import { test } from "vitest";

import { inline, markdown } from "../src/lib/chat/markdown";

const kinds = (text: string): string[] => markdown(text).map((one) => one.kind);

test("blocks are told apart", () => {
  const text = "# A\n\nwords\nmore\n\n- a\n- b\n\n1. c\n\n> q\n\n```py\nx = 1\n```\n\n|a|b|\n|-|-|\n|1|2|\n\n---\n";
  assert.deepEqual(kinds(text), ["heading", "paragraph", "list", "list", "quote", "code", "table", "rule"]);
});

test("code keeps its text and its language", () => {
  assert.deepEqual(markdown("~~~ json\n{\n  # *a*\n~~~"), [{ kind: "code", language: "json", text: "{\n  # *a*" }]);
});

test("a fence that nothing closes goes on to the end", () => {
  assert.deepEqual(markdown("```\na\n\nb"), [{ kind: "code", language: "", text: "a\n\nb" }]);
});

test("marks inside of words and code stay text", () => {
  assert.deepEqual(inline("snake_case_name"), [{ kind: "text", text: "snake_case_name" }]);
  assert.deepEqual(inline("`**a**`"), [{ kind: "code", text: "**a**" }]);
});

test("marks can be nested", () => {
  assert.deepEqual(inline("**a *b***"), [
    {
      kind: "strong",
      inside: [
        { kind: "text", text: "a " },
        { kind: "em", inside: [{ kind: "text", text: "b" }] },
      ],
    },
  ]);
});

for (const url of ["javascript:alert(1)", "data:text/html,x", "//example.com", "file:///etc/passwd", "JaVaScRiPt:x"]) {
  test(`[a](${url}) is not a link`, () => assert.ok(inline(`[a](${url})`).every((one) => one.kind !== "link")));
}

test("links lead to http and https", () => {
  assert.deepEqual(inline("[a](https://example.com/x)"), [{ kind: "link", text: "a", url: "https://example.com/x" }]);
});

test("HTML stays text", () => {
  assert.deepEqual(inline("<b>x</b>"), [{ kind: "text", text: "<b>x</b>" }]);
});
