/** Rarely used screens in one chunk, which is smaller than a chunk for each. */

export { default as Audit } from "./Audit.svelte";
export { default as Health } from "./Health.svelte";
export { default as Results } from "./Results.svelte";
export { default as Servers } from "./Servers.svelte";
export { default as Stats } from "./Stats.svelte";
