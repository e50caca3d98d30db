import assert from "node:assert/strict";
import { test } from "vitest";

import { recipeOf } from "../src/lib/recipe/read";
import { codeOf } from "../src/lib/recipe/recipe";

for (const code of [
  'step1 = weather.today(city="Rome")\nstep1\n',
  'step1 = [weather.today(city=item) for item in ["Rome", "Oslo"] if item != "Oslo"]\nstep1\n',
  'step1 = lamp()\nstep2 = mail.send(text="Today: " + str(step1[0]["sky"])) if step1 else None\nstep2\n',
  'step1 = lamp(n=12345678901234567890, x=-0.5, **{"a b": [True, None]})\n{"a": step1}\n',
]) {
  test(`${JSON.stringify(code)} is a recipe, and is written as it was`, () => {
    const found = recipeOf(code, []);
    assert.ok(found);
    assert.equal(codeOf(found, []), code);
  });
}

for (const code of [
  "import os\n",
  "step1 = lamp(x)\nstep1\n",
  "step1 = lamp()\n",
  "step1 = lamp(); step1\n",
  "step1 = lamp()\nstep1 = lamp()\nstep1\n",
  "lamp = lamp.on()\nlamp\n",
  'step1 = lamp(text="\\x41")\nstep1\n',
  "step1 = lamp(text=step2)\nstep1\n",
  "step1 = lamp(\n",
]) {
  test(`${JSON.stringify(code)} is not a recipe`, () => assert.equal(recipeOf(code, []), null));
}

test("arguments of the recipe are names", () => {
  const code = "step1 = lamp(room=room)\nstep1\n";
  assert.equal(recipeOf(code, []), null);
  assert.equal(recipeOf(code, ["room"])?.steps[0]?.args.room, "${room}");
});

test("no code is an empty recipe", () => assert.deepEqual(recipeOf(" \n", []), { steps: [], result: null }));
