/**
 * The texts of the page in the chosen language. Other catalogues are checked against the English one.
 *
 * `{name}` in a text is replaced. Plural forms are separated by `|`: one, then other. `n` selects the form.
 */

import type { Key } from "../locales/en";
import { loadTexts, preferredLanguage, type Language, type Texts } from "./language";
import { store } from "./storage";

class I18n {
  language: Language = $state("en");
  #loaded: Texts = $state.raw({ messages: {} as Texts["messages"], failures: {}, findings: {} });

  async start(): Promise<void> {
    await this.#load(preferredLanguage());
  }

  async choose(language: Language): Promise<void> {
    store("language", language);
    await this.#load(language);
  }

  async #load(language: Language): Promise<void> {
    this.#loaded = await loadTexts(language);
    this.language = language;
    document.documentElement.lang = language;
  }

  text(key: Key, values: Readonly<Record<string, string | number>> = {}): string {
    let found: string = this.#loaded.messages[key];
    if (found.includes("|") && typeof values.n === "number") {
      const forms = found.split("|");
      const isOne = new Intl.PluralRules(this.language).select(values.n) === "one";
      found = (isOne ? forms[0] : forms[forms.length - 1]) ?? found;
    }
    return found.replace(/\{(\w+)\}/g, (whole, name: string) => {
      const value = values[name];
      return value === undefined ? whole : typeof value === "number" ? this.number(value) : value;
    });
  }

  /** The meaning of an error by its `code` and `reason`; empty if the server's message is enough. */
  failure(code: string, reason: string | null = null): string {
    const known = this.#loaded.failures;
    return known[`${code}/${reason}`] ?? known[reason ?? ""] ?? known[code] ?? "";
  }

  /** The same for a finding of Health. */
  finding(reason: string): string {
    return this.#loaded.findings[reason] ?? "";
  }

  number(value: number, digits = 0): string {
    if (Number.isInteger(value) && Math.abs(value) < 1000) return String(value); // a page's first NumberFormat takes 40 ms
    return new Intl.NumberFormat(this.language, { maximumFractionDigits: digits }).format(value);
  }

  time(iso: string | null | undefined): string {
    if (!iso) return "–";
    return new Intl.DateTimeFormat(this.language, { dateStyle: "medium", timeStyle: "short" }).format(new Date(iso));
  }

  /** A time with seconds, for the order of events. */
  moment(iso: string): string {
    return new Intl.DateTimeFormat(this.language, { dateStyle: "short", timeStyle: "medium" }).format(new Date(iso));
  }

  /** A day of UTC. */
  day(iso: string): string {
    return new Intl.DateTimeFormat(this.language, { dateStyle: "medium", timeZone: "UTC" }).format(new Date(iso));
  }

  /** The elapsed time, in the largest fitting unit. */
  ago(iso: string | null | undefined): string {
    if (!iso) return this.text("time.never");
    const seconds = (Date.parse(iso) - Date.now()) / 1000;
    const units: [Intl.RelativeTimeFormatUnit, number][] = [
      ["day", 86400],
      ["hour", 3600],
      ["minute", 60],
    ];
    const form = new Intl.RelativeTimeFormat(this.language, { numeric: "auto", style: "narrow" });
    for (const [unit, size] of units) {
      if (Math.abs(seconds) >= size) return form.format(Math.trunc(seconds / size), unit);
    }
    return this.text("time.now");
  }

  bytes(size: number): string {
    const units = ["B", "KB", "MB"];
    const step = size < 1000 ? 0 : size < 1_000_000 ? 1 : 2;
    return `${this.number(size / 1000 ** step, step)} ${units[step]}`;
  }

  /** A duration in a readable unit. */
  duration(ms: number | null | undefined): string {
    if (ms === null || ms === undefined) return "–";
    return ms < 1000 ? `${this.number(ms, ms < 10 ? 1 : 0)} ms` : `${this.number(ms / 1000, 2)} s`;
  }
}

export const i18n = new I18n();
export const t = (key: Key, values?: Readonly<Record<string, string | number>>): string => i18n.text(key, values);
