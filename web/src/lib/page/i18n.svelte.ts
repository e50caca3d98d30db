/**
 * The texts of the page. Other catalogues are checked against the English one, and loaded when they are needed.
 *
 * `{name}` in a text is replaced. Plural forms are separated by `|`: one, then other. `n` selects the form.
 */

import { en, type Key, type Messages } from "../locales/en";
import { store, stored } from "./storage";

export const LANGUAGES = { en: "English", "zh-CN": "简体中文" } as const;
export type Language = keyof typeof LANGUAGES;

interface Loaded {
  messages: Messages;
  failures: Readonly<Record<string, string>>;
  findings: Readonly<Record<string, string>>;
}
const ENGLISH: Loaded = { messages: en, failures: {}, findings: {} }; // messages of the server are in English

const LOADERS: Record<Exclude<Language, "en">, () => Promise<Loaded>> = {
  "zh-CN": async () => {
    const [texts, { FAILURES, FINDINGS }] = await Promise.all([import("virtual:zh-CN"), import("./failures-zh-CN")]);
    return { messages: keyed(texts.default), failures: FAILURES, findings: FINDINGS };
  },
};

/** The texts of a language, in the order of the English ones. */
function keyed(texts: readonly string[]): Messages {
  return Object.fromEntries(Object.keys(en).map((key, place) => [key, texts[place]])) as Messages;
}

function preferred(): Language {
  const chosen = stored<string | null>("language", null);
  for (const tag of chosen ? [chosen] : navigator.languages) {
    if (tag === "en" || tag.startsWith("en-")) return "en";
    if (tag === "zh" || tag.startsWith("zh-")) return "zh-CN";
  }
  return "en";
}

class I18n {
  language: Language = $state("en");
  #loaded: Loaded = $state.raw(ENGLISH);

  async start(): Promise<void> {
    await this.#load(preferred());
  }

  async choose(language: Language): Promise<void> {
    store("language", language);
    await this.#load(language);
  }

  async #load(language: Language): Promise<void> {
    this.#loaded = language === "en" ? ENGLISH : await LOADERS[language]();
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
