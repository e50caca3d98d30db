/** A file dropped anywhere on the page, or a text pasted on the first screen, for Build's import. */

import { route } from "../page/route.svelte";
import { may } from "../api/session.svelte";

class DroppedFile {
  file: File | null = $state.raw(null);
  text = $state("");

  paste(text: string): void {
    this.text = text;
    route.go("build", { import: "1" });
  }

  /** Components that accept files, such as Chat, have handled the event already. */
  take = (event: DragEvent): void => {
    const file = event.dataTransfer?.files[0];
    if (!file || event.defaultPrevented) return;
    event.preventDefault();
    if (!may("edit")) return;
    this.file = file;
    route.go("build", { import: "1" });
  };

  /** Without this, the browser opens the file instead of the page. */
  allow = (event: DragEvent): void => {
    if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
  };
}

export const dropped = new DroppedFile();
