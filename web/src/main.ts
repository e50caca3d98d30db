import { mount } from "svelte";

import App from "./App.svelte";
import { i18n } from "./lib/i18n.svelte";
import "./styles.css";

await i18n.start(); // before anything is shown: no text changes under the reader's eyes
mount(App, { target: document.getElementById("app") as HTMLElement });
