/** Files attached to a question: pictures, and UTF-8 text. */

import type { Attached } from "./items";
import { t } from "../page/i18n.svelte";
import { line } from "../text/shown";

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const MAX_BYTES = 5 * 1024 * 1024; // for all files of a question: the server's limit

/** The size of an attached file in bytes. */
function sizeOf({ text, data }: Attached): number {
  if (data !== undefined) return (data.length * 3) / 4;
  return new Blob([text ?? ""]).size;
}

/** Read a file to attach. Throws Error with a message for the user if it can't be sent with the others. */
export async function attached(file: File, others: readonly Attached[] = []): Promise<Attached> {
  const name = file.name || "file";
  if (file.size + others.reduce((sum, one) => sum + sizeOf(one), 0) > MAX_BYTES)
    throw new Error(t("chat.file.large", { name: line(name) }));
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (PICTURES.includes(file.type)) return { name, kind: file.type, data: base64(bytes) };
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (text.includes("\0")) throw new TypeError();
    return { name, kind: "text/plain", text };
  } catch {
    throw new Error(t("chat.file.kind", { name: line(name) }));
  }
}

export const pictureOf = (file: Attached): string | null =>
  file.data && PICTURES.includes(file.kind) ? `data:${file.kind};base64,${file.data}` : null;

function base64(bytes: Uint8Array): string {
  const pieces: string[] = [];
  for (let at = 0; at < bytes.length; at += 0x8000)
    pieces.push(String.fromCharCode(...bytes.subarray(at, at + 0x8000)));
  return btoa(pieces.join(""));
}
