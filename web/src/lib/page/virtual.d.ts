/** Modules that the build generates: see vite.config.ts. */
declare module "virtual:zh-CN" {
  const texts: readonly string[];
  export default texts;
}
