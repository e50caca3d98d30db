import assert from "node:assert/strict";
import { beforeEach, test, vi } from "vitest";

import type { Outcome } from "../src/lib/call/invoke";

vi.setConfig({ testTimeout: 60_000 }); // the first test waits until all of it is transformed

/** Stands for the storage of a tab, or of the browser. */
function storage(): Storage {
  const kept = new Map<string, string>();
  return {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value),
    removeItem: (key: string) => void kept.delete(key),
  } as Storage;
}
const outcome = (value: string): Outcome => ({
  ok: true,
  value,
  size: value.length,
  durationMs: 1,
  at: "2026-11-18T00:00:00Z",
});
const kept = (place = sessionStorage): string => place.getItem("onetool.history") ?? "";

beforeEach(() => {
  vi.resetModules();
  vi.stubGlobal("localStorage", storage());
  vi.stubGlobal("sessionStorage", storage());
  vi.stubGlobal("addEventListener", () => {});
  vi.stubGlobal("location", { hash: "" });
  vi.stubGlobal("document", { baseURI: "http://127.0.0.1/", documentElement: { style: {} } });
});
const load = async () => {
  const { past } = await import("../src/lib/call/past.svelte");
  const { session } = await import("../src/lib/api/session.svelte");
  return { past, session };
};

test("the oldest calls make room: 5 MB at most, a quarter of that in the tab", async () => {
  const { past } = await load();
  for (let n = 0; n < 9; n++) past.add({ of: "a", name: "a", args: { n }, outcome: outcome("x".repeat(900_000)) });
  assert.deepEqual(
    past.list.map((one) => (one.args as { n: number }).n),
    [8, 7, 6, 5, 4],
  );
  assert.ok(kept().length > 900_000 && kept().length < 1_300_000);
});

test("secret arguments are left out", async () => {
  const { past } = await load();
  const schema = { type: "object", properties: { pin: { type: "string", writeOnly: true } } };
  past.add({ of: "a", name: "a", args: { pin: "1234", city: "Rome" }, outcome: outcome("") }, schema);
  assert.deepEqual(past.of("a")[0]?.args, { city: "Rome" });
});

test("a reload shows it to the same user alone", async () => {
  const first = await load();
  first.session.who = { name: "ann", role: "call" };
  first.past.add({ of: "a", name: "a", args: {}, outcome: outcome("1") });

  vi.resetModules();
  const again = await import("../src/lib/api/session.svelte");
  again.session.who = { name: "ann", role: "call" };
  assert.equal((await load()).past.list.length, 1);

  vi.resetModules();
  const other = await import("../src/lib/api/session.svelte");
  other.session.who = { name: "bob", role: "call" };
  assert.equal((await load()).past.list.length, 0);
});

test("it moves to the browser's storage and back", async () => {
  const { past } = await load();
  past.add({ of: "a", name: "a", args: {}, outcome: outcome("1") });
  past.keepLonger(true);
  assert.ok(kept() === "" && kept(localStorage) !== "");
  past.keepLonger(false);
  assert.ok(kept() !== "" && kept(localStorage) === "");
  past.clear();
  assert.equal(kept(), "");
});
