/** The screens. Each is loaded when it is opened first; the list of tools is in the first bytes. */

import type { Component } from "svelte";

import Tools from "../screens/Tools.svelte";
import type { Key } from "./locales/en";

export interface Screen {
  id: string;
  label: Key;
  keys: string;
  icon: string; // the path of an icon of 16 by 16
  load: () => Promise<{ default: Component }> | { default: Component };
}

export const SCREENS: readonly Screen[] = [
  { id: "tools", label: "screen.tools", keys: "g t", icon: "M2 4h12M2 8h12M2 12h12", load: () => ({ default: Tools }) },
  { id: "chat", label: "screen.chat", keys: "g c", icon: "M2 3h12v8H7l-4 3v-3H2z", load: () => import("../screens/Chat.svelte") },
  { id: "build", label: "screen.build", keys: "g b", icon: "M8 2v12M2 8h12", load: () => import("../screens/Build.svelte") },
];
