import { takeKey } from "./lib/link";

const key = takeKey(); // before anything else is loaded
const { start } = await import("./start");
await start(key);
