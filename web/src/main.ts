import { askAhead } from "./lib/api/ahead";
import { loadTexts, preferredLanguage } from "./lib/page/language";
import { takeKey } from "./lib/page/link";

const key = takeKey(); // before anything else is loaded
if (key === null) void askAhead();
void loadTexts(preferredLanguage());
const { start } = await import("./start");
await start(key);
