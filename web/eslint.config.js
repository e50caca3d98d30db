import svelte from "eslint-plugin-svelte";
import ts from "typescript-eslint";

import config from "./svelte.config.js";

export default ts.config(
  { ignores: ["src/lib/api/types.d.ts"] },
  ...ts.configs.recommended,
  ...svelte.configs.recommended,
  {
    files: ["**/*.svelte", "**/*.svelte.ts"],
    languageOptions: { parserOptions: { parser: ts.parser, svelteConfig: config } },
  },
  {
    rules: {
      "no-undef": "off", // TypeScript knows the browser's names
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
      "svelte/no-unused-svelte-ignore": "off", // svelte-check knows better which ones are needed
      "svelte/no-useless-mustaches": "off", // {" "} is a space that formatting keeps
      "svelte/prefer-svelte-reactivity": "off", // maps and sets in $state.raw are replaced as a whole
    },
  },
);
