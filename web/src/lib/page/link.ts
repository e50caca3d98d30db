/** The key of a link of `onetool page`, which stands behind `#` in the address. */

const KEY = /^#k=([\w-]+)$/;

/** Take the key out of the address bar and its history. */
export function takeKey(): string | null {
  const key = KEY.exec(location.hash)?.[1];
  if (key === undefined) return null;
  history.replaceState(null, "", location.pathname + location.search);
  return key;
}

// Pasted into a tab that shows the page already: the browser only changes the hash then.
addEventListener("hashchange", () => {
  if (KEY.test(location.hash)) location.reload();
});
