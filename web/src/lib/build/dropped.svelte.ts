/** A file that was dropped anywhere on the page, or a text that was pasted on the first screen: Build's import takes it. */

import { route } from "../page/route.svelte";
import { may } from "../api/session.svelte";

class DroppedFile {
  file: File | null = $state.raw(null);
  text = $state("");

  paste(text: string): void {
    this.text = text;
    route.go("build", { import: "1" });
  }

  /** Who takes files of their own, such as a chat, has done so before. */
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
