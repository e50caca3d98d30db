import { takeKey } from "./lib/page/link";

const key = takeKey(); // before anything else is loaded
const { start } = await import("./start");
await start(key);
