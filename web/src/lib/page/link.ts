/** The key of a link of `onetool page`, in the URL fragment. */

const KEY = /^#k=([\w-]+)$/;

/** Take the key out of the address bar and its history. */
export function takeKey(): string | null {
  const key = KEY.exec(location.hash)?.[1];
  if (key === undefined) return null;
  history.replaceState(null, "", location.pathname + location.search);
  return key;
}

// If the link is pasted into a tab with the page, the browser only changes the fragment.
addEventListener("hashchange", () => {
  if (KEY.test(location.hash)) location.reload();
});
