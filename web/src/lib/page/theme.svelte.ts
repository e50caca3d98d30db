/** Light, dark, or the system's theme. The style sheet uses `data-theme`. */

import { store, stored } from "./storage";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

class ThemeChoice {
  value: Theme = $state(stored<Theme>("theme", "system"));

  constructor() {
    this.#show();
  }

  next(): void {
    this.choose(THEMES[(THEMES.indexOf(this.value) + 1) % THEMES.length] ?? "system");
  }

  choose(value: Theme): void {
    this.value = value;
    store("theme", value);
    this.#show();
  }

  #show(): void {
    if (this.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = this.value;
  }
}

export const theme = new ThemeChoice();
