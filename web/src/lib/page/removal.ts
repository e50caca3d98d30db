/** Keeps the focus in a useful place when the focused element is deleted. */

import { tick } from "svelte";

const REACHED = "textarea, input:not([hidden]), select, button:not(:disabled), a[href]";

/**
 * Remove a row, which has `data-item`, by a button in it. The focus goes to the same button of the row that takes its
 * place, or of the last one; without rows to the last button of the list, or to what stands around it.
 */
export async function removing(event: Event, remove: () => unknown): Promise<void> {
  const button = event.currentTarget as HTMLElement;
  const row = button.closest("[data-item]");
  const homes = parents(row);
  const at = homes[0] ? rowsOf(homes[0]).indexOf(row as Element) : -1;
  await remove();
  await tick();
  if (document.activeElement !== document.body) return;
  for (const home of homes.filter((one) => one.isConnected)) {
    const rows = home === homes[0] ? rowsOf(home) : [];
    const next = rows[at] ?? rows.at(-1);
    const same = next && [...next.querySelectorAll("button")].find((one) => one.textContent === button.textContent);
    const target =
      same ??
      (home === homes[0] ? [...home.querySelectorAll("button")].at(-1) : home.querySelector<HTMLElement>(REACHED));
    if (target) return target.focus();
  }
}

/** Focus the reachable row of the list, or the screen, after the open item was deleted. */
export async function focusList(): Promise<void> {
  await tick();
  const row =
    document.querySelector<HTMLElement>("main [data-row][tabindex='0']") ??
    document.querySelector<HTMLElement>("main [data-row]");
  (row?.checkVisibility() ? row : document.getElementById("main"))?.focus();
}

const rowsOf = (list: Element): Element[] => [...list.children].filter((one) => one.hasAttribute("data-item"));

function parents(row: Element | null): HTMLElement[] {
  const found: HTMLElement[] = [];
  for (let at = row?.parentElement; at; at = at.parentElement) found.push(at);
  return found;
}
