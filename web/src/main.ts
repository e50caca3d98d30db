import { askAhead } from "./lib/api/ahead";
import { loadTexts, preferredLanguage } from "./lib/page/language";
import { takeKey } from "./lib/page/link";

const key = takeKey(); // before anything else is loaded
const code = import("./start");
if (key === null) void askAhead();
void loadTexts(preferredLanguage());
await (await code).start(key);
