/** Where the history of calls is kept. It ends with the session, even if nothing has loaded the history. */

import { session } from "../api/session.svelte";
import { store } from "../page/storage";

export const HISTORY_KEY = "history";

session.onLeave(() => {
  for (const place of [() => localStorage, () => sessionStorage]) store(HISTORY_KEY, null, place);
});
