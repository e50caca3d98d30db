import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// Relative addresses: the page also works below a path of somebody else's web app. No source maps: assets are committed.
export default defineConfig({
  base: "./",
  plugins: [svelte()],
  build: {
    outDir: "../src/onetool/interfaces/web/static",
    emptyOutDir: true,
    target: "es2022",
    sourcemap: false,
    modulePreload: { polyfill: false }, // it would be an inline script, which the page's policy refuses
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    license: false,
  },
});
