/** The languages of the page and their texts. The texts are loaded beside the code of the page. */

import type { Messages } from "../locales/en";
import { stored } from "./storage";

export const LANGUAGES = { en: "English", "zh-CN": "简体中文" } as const;
export type Language = keyof typeof LANGUAGES;

export interface Texts {
  messages: Messages;
  failures: Readonly<Record<string, string>>;
  findings: Readonly<Record<string, string>>;
}

const LOADERS: Record<Language, () => Promise<Texts>> = {
  // Messages of the server are in English.
  en: async () => ({ messages: (await import("../locales/en")).en, failures: {}, findings: {} }),
  "zh-CN": async () => {
    const { TEXTS, FAILURES, FINDINGS } = await import("./failures-zh-CN");
    return { messages: TEXTS, failures: FAILURES, findings: FINDINGS };
  },
};

export const loadTexts = (language: Language): Promise<Texts> => LOADERS[language]();

/** Return the language that the user chose, or the first one of the browser's that the page has. */
export function preferredLanguage(): Language {
  const chosen = stored<string | null>("language", null);
  for (const tag of chosen ? [chosen] : navigator.languages) {
    if (tag === "en" || tag.startsWith("en-")) return "en";
    if (tag === "zh" || tag.startsWith("zh-")) return "zh-CN";
  }
  return "en";
}
