/* What the driver of a test looks for in the page: things by the name and role that a screen reader would say. */
globalThis.__person = (() => {
  const INTERACTIVE = 'a[href], button, input, select, textarea, summary, [role], [contenteditable="true"], [tabindex]';
  const FIELDS = 'input, select, textarea, [contenteditable="true"], [role="textbox"], [role="combobox"]';

  /* All elements that fit, also those in shadow roots. */
  function all(selector, root = document) {
    const found = [...root.querySelectorAll(selector)];
    for (const one of root.querySelectorAll("*")) if (one.shadowRoot) found.push(...all(selector, one.shadowRoot));
    return found;
  }

  const plain = (text) => (text ?? "").replace(/\s+/g, " ").trim();
  const isShown = (one) => one.checkVisibility({ visibilityProperty: true }) && one.getClientRects().length > 0;

  /* Where a modal dialog is open, a person can reach nothing else. */
  function stage() {
    return [...document.querySelectorAll("dialog:modal")].pop() ?? document;
  }

  /* Every text that may be its name. Asking the browser for the true one takes milliseconds: only those that may fit are asked. */
  function mayBe(one) {
    const ids = (one.getAttribute("aria-labelledby") ?? "").split(/\s+/).filter(Boolean);
    const labels = [...(one.labels ?? []), ...ids.map((id) => one.getRootNode().getElementById?.(id))];
    const given = ["aria-label", "title", "placeholder", "alt", "value"].map((key) => one.getAttribute(key));
    return plain([...given, ...labels.map((label) => label?.textContent), one.textContent].join(" "));
  }

  function named(selector, name, role) {
    const shown = all(selector, stage()).filter((one) => mayBe(one).includes(name) && isShown(one) && !one.disabled);
    const innermost = role ? shown : shown.filter((one) => !shown.some((other) => other !== one && one.contains(other)));
    const fitting = innermost.filter((one) => !role || one.computedRole === role).map((one) => [one, plain(one.computedName), plain(one.innerText)]);
    const exact = fitting.filter(([, said, text]) => said === name || text === name);
    const part = fitting.filter(([, said, text]) => said.includes(name) || text.includes(name));
    return (exact.length ? exact : part).map(([one]) => one);
  }

  /* The middle of something, once a person could click it: [x, y], or what is in the way. */
  function point(one) {
    one.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
    const box = one.getBoundingClientRect();
    const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    let hit = document.elementFromPoint(x, y);
    while (hit?.shadowRoot?.elementFromPoint(x, y) && hit.shadowRoot.elementFromPoint(x, y) !== hit) hit = hit.shadowRoot.elementFromPoint(x, y);
    for (let at = hit; at; at = at.parentNode ?? at.host) if (at === one || (at.control && at.control === one)) return { x, y };
    return { blocked: hit ? hit.outerHTML.slice(0, 120) : "it is outside of the window" };
  }

  function where(kind, name, role, nth) {
    return named(kind === "field" ? FIELDS : INTERACTIVE, name, role).at(nth) ?? null;
  }

  let aimed = null;
  let isHit = false;
  function target(kind, name, role, nth) {
    aimed = where(kind, name, role, nth);
    return aimed ? point(aimed) : null;
  }

  /* A page that is still being laid out moves things away from under the pointer. */
  for (const kind of ["mousedown", "mouseup"]) {
    addEventListener(kind, (event) => (isHit = event.composedPath().some((one) => one === aimed || (one.control && one.control === aimed))), true);
  }
  /* Whether the last press or release was on what was aimed at. What went away by it, also with its whole page, was hit. */
  const hit = () => isHit || !aimed?.isConnected;

  function text() {
    const pieces = [document.body.innerText];
    for (const one of all("*")) if (one.shadowRoot) pieces.push(...[...one.shadowRoot.children].map((child) => child.innerText ?? ""));
    return pieces.join("\n");
  }

  /* An option of a list, chosen as the browser would tell it. */
  function choose(label, option) {
    const list = where("field", label, null, 0);
    const found = [...(list?.options ?? [])].find((one) => plain(one.text) === option) ?? [...(list?.options ?? [])].find((one) => plain(one.text).startsWith(option));
    if (!found) return false;
    list.focus();
    list.value = found.value;
    for (const kind of ["input", "change"]) list.dispatchEvent(new Event(kind, { bubbles: true }));
    return true;
  }

  /* Files of the clipboard, as the browser hands them to what has the focus. */
  function paste(files) {
    const clipboardData = new DataTransfer();
    for (const [name, type, bytes] of files) clipboardData.items.add(new File([new Uint8Array(bytes)], name, { type }));
    active().dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
  }

  function active() {
    let one = document.activeElement;
    while (one?.shadowRoot?.activeElement) one = one.shadowRoot.activeElement;
    return one;
  }

  const focused = () => [active()?.computedRole ?? "", plain(active()?.computedName)];
  const TAGS = { listitem: "li", link: "a[href]", button: "button, summary", option: "option", tab: "button", heading: "h1, h2, h3", row: "tr", cell: "td", alert: "[role=alert]" };
  function names(role) {
    const found = all(`[role="${role}"], ${TAGS[role] ?? "input, select, textarea"}`, stage());
    return found.filter((one) => isShown(one) && one.computedRole === role).map((one) => plain(one.computedName) || plain(one.innerText));
  }
  const clear = () => (active()?.select ? active().select() : getSelection().selectAllChildren(active()));
  /* A field is only as good as its label: what a screen reader says of each thing that can be reached, for messages. */
  const reachable = () => all(INTERACTIVE, stage()).filter(isShown).slice(0, 60).map((one) => `${one.computedRole} ${JSON.stringify(plain(one.computedName).slice(0, 60))}`);
  const overflow = () => all("body *").filter((one) => isShown(one) && one.getBoundingClientRect().right > innerWidth + 1 && !scrolls(one)).map((one) => one.outerHTML.slice(0, 120));
  function scrolls(one) {
    for (let at = one.parentElement; at; at = at.parentElement) if (/auto|scroll|hidden|clip/.test(getComputedStyle(at).overflowX)) return true;
    return one.closest(".unseen, .skip") !== null;
  }
  // What can be scrolled sideways, except what is made for it: tables, code and the bar of a phone.
  const sideways = () => all("main, main *, dialog *").filter((one) => isShown(one) && /auto|scroll/.test(getComputedStyle(one).overflowX) && one.scrollWidth > one.clientWidth + 1 && !one.matches("pre, .scroll, .cm-scroller, [role=tablist], textarea, input")).map((one) => `${one.scrollWidth} > ${one.clientWidth}: ${one.outerHTML.slice(0, 120)}`);
  return { sideways, all, where, target, hit, text, choose, paste, focused, names, clear, reachable, overflow };
})();
