/** The screens. Each is loaded when it is first opened; the list of tools is part of the first bundle. */

import type { Component } from "svelte";

import Tools from "../../screens/Tools.svelte";
import type { Key } from "../locales/en";
import type { Role } from "../api/session.svelte";

export interface Screen {
  id: string;
  label: Key;
  keys: string;
  icon: string; // the path of an icon of 16 by 16
  role?: Role; // the required role
  load: () => Promise<{ default: Component }> | { default: Component };
}

const ops = async (name: "Servers" | "Results" | "Stats" | "Health" | "Audit"): Promise<{ default: Component }> => ({
  default: (await import("../../screens/ops"))[name],
});

export const SCREENS: readonly Screen[] = [
  { id: "tools", label: "screen.tools", keys: "g t", icon: "M2 4h12M2 8h12M2 12h12", load: () => ({ default: Tools }) },
  {
    id: "chat",
    label: "screen.chat",
    keys: "g c",
    icon: "M2 3h12v8H7l-4 3v-3H2z",
    load: () => import("../../screens/Chat.svelte"),
  },
  {
    id: "build",
    label: "screen.build",
    keys: "g b",
    icon: "M8 2v12M2 8h12",
    role: "edit",
    load: () => import("../../screens/Build.svelte"),
  },
  {
    id: "play",
    label: "screen.play",
    keys: "g p",
    icon: "M4 3l9 5-9 5z",
    load: () => import("../../screens/Play.svelte"),
  },
  {
    id: "recipe",
    label: "screen.recipe",
    keys: "g r",
    icon: "M3 3h10v4H3zM3 10h10v3H3zM8 7v3",
    load: () => import("../../screens/Recipe.svelte"),
  },
  {
    id: "servers",
    label: "screen.servers",
    keys: "g s",
    icon: "M2 3h12v4H2zM2 9h12v4H2zM5 5h0M5 11h0",
    load: () => ops("Servers"),
  },
  {
    id: "results",
    label: "screen.results",
    keys: "g e",
    icon: "M3 2h7l3 3v9H3zM6 8h4M6 11h4",
    load: () => ops("Results"),
  },
  { id: "stats", label: "screen.stats", keys: "g a", icon: "M3 14V8M8 14V2M13 14V6", load: () => ops("Stats") },
  {
    id: "health",
    label: "screen.health",
    keys: "g h",
    icon: "M1 8h3l2-5 4 10 2-5h3",
    role: "edit",
    load: () => ops("Health"),
  },
  {
    id: "audit",
    label: "screen.audit",
    keys: "g l",
    icon: "M4 2h8v12H4zM6 5h4M6 8h4M6 11h2",
    role: "admin",
    load: () => ops("Audit"),
  },
];
