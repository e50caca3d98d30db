/** Tries a draft: sample arguments, the preview of its requests, and the responses. Nothing is stored. */

import { ApiError, refusal, send, type Schemas } from "../api/client";
import { sampleOf, withRequired, withRow } from "./args";
import type { Draft } from "./draft.svelte";
import { failureOf, type Need } from "../api/failure";
import { t } from "../page/i18n.svelte";
import type { Outcome } from "../call/invoke";
import { isObject, objectIn, parseJson, writeJson, type Json, type JsonObject } from "../text/json-text";
import { notices } from "../page/notices.svelte";
import type { RequestPreview } from "../../parts/result/Requests.svelte";
import { line } from "../text/shown";
import { takeTyped } from "../form/typed";

export type Response = Schemas["UpstreamResponse"];

const LOOK_AFTER_MS = 350;
const QUIET = ["GET", "HEAD"];
const PLACEHOLDER = /\$\{([^{}]{1,200})\}/g;
const SLUG = /^[\p{L}\p{Nd}-]{1,64}$/u;

export class DraftTrial {
  preview: RequestPreview | null = $state.raw(null);
  /** Why there is no preview. */
  failed: unknown = $state.raw(null);
  responses: readonly Response[] = $state.raw([]);
  /** The value that the tool would return. */
  outcome: Outcome | null = $state.raw(null);
  running: { stop: AbortController; since: number } | null = $state.raw(null);
  /** The method to confirm. */
  asking = $state("");
  /** Names that the user marked as secrets. */
  secrets: ReadonlySet<string> = $state.raw(new Set());
  #confirmed = new Set<string>();

  constructor(readonly draft: Draft) {}

  readonly schema: JsonObject = $derived.by(() => objectAt(this.draft, "/argSchema"));
  readonly sample: string = $derived.by(() => writeJson(sampleOf(this.schema), 2));
  readonly text: string = $derived.by(() => this.draft.args ?? this.sample);
  readonly args: JsonObject | null = $derived.by(() => {
    try {
      const found = parseJson(this.text);
      return isObject(found) ? found : null;
    } catch {
      return null;
    }
  });
  readonly needs: readonly Need[] = $derived.by(() => (this.preview?.requests ?? []).flatMap((one) => one.needs ?? []));

  /** Placeholders that are neither arguments nor stored secrets. */
  readonly unknown: string[] = $derived.by(() => {
    const known = isObject(this.schema.properties) ? this.schema.properties : {};
    const found = [...writeJson(this.draft.part("/httpImpl")).matchAll(PLACEHOLDER)].map((one) => one[1] ?? "");
    const names = [...new Set(found)].filter((name) => !Object.hasOwn(known, name) && !name.startsWith("steps."));
    if (this.failed instanceof ApiError && this.failed.code === "secret_not_bound") return names;
    const wrong = (this.preview?.errors ?? []).filter((one) => one.pointer.startsWith("/tool/httpImpl")); // such as a file that is not an argument
    return names.filter(
      (name) =>
        this.needs.some((need) => need.secret === name) ||
        wrong.some((one) => this.draft.text(one.pointer.slice("/tool".length)).includes(`\${${name}}`)),
    );
  });

  /** Fetch the preview a moment after the last change. Return a function that cancels. */
  look(): () => void {
    void this.draft.granted;
    const [body, stop] = [this.#body(), new AbortController()];
    if (this.args === null) return () => {};
    const timer = setTimeout(async () => {
      try {
        const response = await send("tools/preview", { body: writeJson(body), signal: stop.signal });
        const text = await response.text();
        if (!response.ok) throw refusal(response.status, text);
        [this.preview, this.failed] = [objectIn(text) as unknown as RequestPreview, null];
      } catch (error) {
        if (!stop.signal.aborted) this.failed = error;
      }
    }, LOOK_AFTER_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }

  /** A host was allowed or a secret was set: check again. */
  again = (): void => void (this.draft.granted += 1);

  #body(): Record<string, unknown> {
    return {
      tool: this.draft.content,
      ...(this.draft.place.bundleID ? { bundleID: this.draft.place.bundleID } : {}),
      args: this.args,
    };
  }

  argument(name: string): void {
    const isInUrl =
      writeJson(this.draft.part("/httpImpl"))
        .match(/"urlTemplate":\s*"[^"]*/g)
        ?.some((url) => url.includes(`\${${name}}`)) ?? false;
    const schema = withRow(this.schema, name);
    this.draft.set("/argSchema", isInUrl ? withRequired(schema, name, true) : schema);
  }

  secret(name: string): void {
    this.secrets = new Set([...this.secrets, name]);
  }

  get #loud(): string {
    const one = this.draft.part("/httpImpl/requests");
    const requests = Array.isArray(one)
      ? one.map((step) => (isObject(step) ? step.request : null))
      : [this.draft.part("/httpImpl/request")];
    const methods = requests.map((request) =>
      isObject(request) && typeof request.method === "string" ? request.method : "GET",
    );
    return methods.find((method) => !QUIET.includes(method)) ?? "";
  }

  /** Send the draft. Methods that may change something need one confirmation per draft. */
  async send(isConfirmed = false): Promise<void> {
    takeTyped();
    const loud = this.#loud;
    if (this.running || this.args === null) return;
    if (loud && !isConfirmed && !this.#confirmed.has(loud)) return void (this.asking = loud);
    this.asking = "";
    if (loud) this.#confirmed.add(loud);
    const [start, at, stop] = [performance.now(), new Date().toISOString(), new AbortController()];
    this.running = { stop, since: start };
    const { slug = "", version = "" } = this.draft.place;
    const body = {
      ...this.#body(),
      tool: { ...this.draft.content, ...(SLUG.test(slug) && version ? { slug, version } : {}) },
      ...(loud ? { confirmed: true } : {}),
    };
    try {
      const response = await send("tools/send", { body: writeJson(body), signal: stop.signal });
      const text = await response.text();
      const found = objectIn(text);
      const when = { durationMs: performance.now() - start, at };
      this.responses = response.ok && Array.isArray(found.responses) ? (found.responses as unknown as Response[]) : [];
      if (response.ok && found.ok === true)
        this.outcome = {
          ok: true,
          value: (found.value ?? null) as Json,
          size: writeJson(found.value ?? null).length,
          ...when,
        };
      else
        this.outcome = {
          ok: false,
          failure: failureOf(isObject(found.error) ? found.error : found, `HTTP ${response.status}`),
          ...when,
        };
      notices.announce(this.outcome.ok ? t("try.done") : line(this.outcome.failure.message));
    } catch (error) {
      if (!stop.signal.aborted) notices.error(error);
      else notices.announce(t("try.stopped"));
    } finally {
      this.running = null;
    }
  }

  stop(): void {
    this.running?.stop.abort();
  }
}

const objectAt = (draft: Draft, at: string): JsonObject =>
  isObject(draft.part(at)) ? (draft.part(at) as JsonObject) : {};
