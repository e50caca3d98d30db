import { mount } from "svelte";

import App from "./App.svelte";
import { i18n } from "./lib/page/i18n.svelte";
import { notices } from "./lib/page/notices.svelte";
import { session } from "./lib/api/session.svelte";
import "./styles.css";

/** Show the page, signed in with the key of a link if there is one. */
export async function start(key: string | null): Promise<void> {
  if (key === null) void session.start(); // while the texts are loading
  await i18n.start(); // before anything is shown: no text changes under the reader's eyes
  if (key !== null) {
    await session.useLink(key).catch((error: unknown) => notices.error(error));
    void session.start();
  }
  mount(App, { target: document.getElementById("app") as HTMLElement });
}
