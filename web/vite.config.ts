import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig, loadEnv, type Plugin } from "vite";

import { en } from "./src/lib/locales/en";
import { zhCN } from "./src/lib/locales/zh-CN";

// `python -m web.build --dev`: the page from its sources, everything else from a server that runs. To that one, requests
// come from its own page.
const upstream = loadEnv("", ".", "ONETOOL_").ONETOOL_URL ?? "http://127.0.0.1:8765";
const toServer = { target: upstream, changeOrigin: true, headers: { origin: upstream } };

// Keys of texts are for those who write the page: it is sent with their numbers, from 1 on. Those that code puts together
// stay, and those of one word.
const TOGETHER = /^(effect|health|role|source|theme)\./;
const KEY = "[a-z]+\\.[a-z.-]+";
const isNumbered = (key: string): boolean => new RegExp(`^${KEY}$`).test(key) && !TOGETHER.test(key);
const NUMBERED = Object.keys(en).filter(isNumbered);
const NAMED = Object.keys(en).filter((key) => !isNumbered(key));

const numbers = new Map(NUMBERED.map((key, place) => [key, place + 1]));
const numbered = (texts: Record<string, string>): string =>
  `Object.assign(${JSON.stringify(["", ...NUMBERED.map((key) => texts[key])])}, ${JSON.stringify(Object.fromEntries(NAMED.map((key) => [key, texts[key]])))})`;
const numberedKeys: Plugin = {
  name: "numbered-keys",
  apply: "build",
  enforce: "post",
  transform: (code, id) => {
    if (id.endsWith("/locales/en.ts")) return `export const en = ${numbered(en)};`;
    if (id.endsWith("/locales/zh-CN.ts")) return `export const zhCN = ${numbered(zhCN)};`;
    return /\/src\/.*\.(ts|svelte)$/.test(id)
      ? code.replace(new RegExp(`(["'\`])(${KEY})\\1`, "g"), (whole, _, key: string) =>
          String(numbers.get(key) ?? whole),
        )
      : undefined;
  },
};

// Relative addresses: the page also works below a path of somebody else's web app. No source maps: assets are committed.
export default defineConfig({
  base: "./",
  plugins: [svelte(), numberedKeys],
  server: {
    host: "127.0.0.1",
    proxy: {
      "^/(login|tools|call|run|ask|mcp|events|status|servers|results|stats|check|trust|audit|hosts|secrets|tokens|docs|openapi.json)(/|$|\\?)":
        toServer,
    },
  },
  build: {
    outDir: "../src/onetool/interfaces/web/static",
    emptyOutDir: true,
    target: "es2022",
    sourcemap: false,
    modulePreload: { polyfill: false }, // it would be an inline script, which the page's policy refuses
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    license: false,
    rolldownOptions: {
      // These packages do nothing when they are loaded, and don't say so.
      treeshake: {
        moduleSideEffects: [
          { test: /node_modules\/(@lezer|@marijn|style-mod|w3c-keyname|crelt)\//, sideEffects: false },
        ],
      },
      output: {
        // What several screens share comes in few pieces: many small ones compress badly.
        codeSplitting: {
          groups: [
            // It takes the key of a link out of the address before the rest is loaded, and sends the first requests.
            {
              name: "link",
              priority: 3,
              test: /preload-helper|src\/lib\/(api\/(ahead|client)|page\/(language|link|storage))\./,
            },
            {
              name: "base",
              priority: 2,
              test: /node_modules\/svelte|src\/(App\.|start\.|styles|screens\/(Tools|SignIn)\.|lib\/(api\/(catalog|events|fetched|session|tool)|build\/dropped|call\/(calls|kept)|chat\/working|page\/(screens|actions|filter|i18n|keys|notices|route|sized|start|theme|tour)|text\/(paragraphs|shown))\.|parts\/(start\/|servers\/Shown|(Finder|Keys|Notices|Tour|Welcome|Words|VirtualList|CopyButton|Dialog|Empty|Keyboard|Needs|Palette|Skeleton|Switch)\.))/,
            },
            {
              name: "screens",
              test: /src\/(screens\/|parts\/|lib\/(?!locales\/|page\/failures|editor\/(completion|editor|highlight|keys|problems)))/,
            },
          ],
        },
      },
    },
  },
});
