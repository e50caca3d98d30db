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
  { id: "build", label: "screen.build", keys: "g b", icon: "M8 2v12M2 8h12", load: () => import("../screens/Build.svelte") },
  { id: "play", label: "screen.play", keys: "g p", icon: "M4 3l9 5-9 5z", load: () => import("../screens/Play.svelte") },
  { id: "recipe", label: "screen.recipe", keys: "g r", icon: "M3 3h10v4H3zM3 10h10v3H3zM8 7v3", load: () => import("../screens/Recipe.svelte") },
];
