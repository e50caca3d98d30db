/** Rarely used screens, in one bundle: together they are smaller than one by one. */

export { default as Audit } from "./Audit.svelte";
export { default as Health } from "./Health.svelte";
export { default as Results } from "./Results.svelte";
export { default as Servers } from "./Servers.svelte";
export { default as Stats } from "./Stats.svelte";
